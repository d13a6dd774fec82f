"""One prepared folder, made once; tests that change it get a copy."""

import shutil
from pathlib import Path

import pytest

from tests.unit.sharding.building import Work, prepare, write


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """What sharding starts from: two packing groups, two epochs, rows used twice, rejected and truncated rows."""
    return prepare(tmp_path_factory.mktemp("work"), seed=1, num_rows=50, epochs=2, repeats=2)


@pytest.fixture(scope="session")
def pristine(work: Work, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared folder; read only."""
    out = tmp_path_factory.mktemp("out")
    write(out, work)
    return out


@pytest.fixture
def out(pristine: Path, tmp_path: Path) -> Path:
    """A copy that the test may spoil."""
    return shutil.copytree(pristine, tmp_path / "out")
