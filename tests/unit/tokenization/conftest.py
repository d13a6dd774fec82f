from collections.abc import Callable
from pathlib import Path

import pytest

from hbp_prep.tokenization.tokenizer import ChatTokenizer
from tests.unit.tokenization.building import load, write_folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer with one token a byte, without a template."""
    return write_folder(tmp_path_factory.mktemp("tokenizers") / "bytes")


@pytest.fixture(scope="session")
def tulu3(folder: Path) -> ChatTokenizer:
    return load(folder, "tulu3")


@pytest.fixture(scope="session")
def chatml(folder: Path) -> ChatTokenizer:
    return load(folder, "chatml")


@pytest.fixture
def with_template(folder: Path, tmp_path: Path) -> Callable[..., ChatTokenizer]:
    """The byte tokenizer with a template given as text."""

    def make(template: str, **settings: str) -> ChatTokenizer:
        path = tmp_path / "test.jinja"
        path.write_text(template)
        return load(folder, str(path), **settings)

    return make
