"""Any one changed byte in a prepared folder is found, and no reader ever fails in another way than it says."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.errors import ManifestError
from hbp_prep.manifest.reader import ManifestReader
from hbp_prep.manifest.verify import examine, verify
from tests.unit.sharding.building import contents, prepare, write


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder whose bytes tests change and put back."""
    work = prepare(tmp_path_factory.mktemp("work"), seed=3, num_rows=30)
    folder = tmp_path_factory.mktemp("out")
    write(folder, work)
    return folder


@contextmanager
def one_byte_changed(out: Path, data: st.DataObject) -> Iterator[str]:
    """Inside, one byte of one file is another; gives the file's name."""
    name = data.draw(st.sampled_from(sorted(contents(out))))
    original = (out / name).read_bytes()
    offset = data.draw(st.integers(0, len(original) - 1))
    changed = bytearray(original)
    changed[offset] ^= data.draw(st.integers(1, 255))
    (out / name).write_bytes(changed)
    try:
        yield name
    finally:
        (out / name).write_bytes(original)


@given(data=st.data())
@settings(deadline=None, max_examples=300)
def test_any_changed_byte_is_found_and_its_file_named(out, data):
    with one_byte_changed(out, data) as name, pytest.raises(ManifestError) as caught:
        verify(out)
    assert name in str(caught.value)


@given(data=st.data())
@settings(deadline=None, max_examples=300)
def test_without_checksums_damage_is_harmless_or_a_clear_error(out, data):
    with one_byte_changed(out, data):
        try:
            examine(out, quick=True)
            reader = ManifestReader(out)
            for rank in range(reader.manifest.world_size):
                list(reader.packs_of_rank(rank))
        except ManifestError as error:
            assert len(str(error).splitlines()) == 1


@given(data=st.data(), length=st.integers(0, 10_000))
@settings(deadline=None, max_examples=60)
def test_any_cut_is_found(out, data, length):
    path = out / data.draw(st.sampled_from(sorted(contents(out))))
    original = path.read_bytes()
    path.write_bytes(original[: min(length, len(original) - 1)])
    try:
        with pytest.raises(ManifestError) as caught:
            verify(out)
        assert path.name in str(caught.value)
    finally:
        path.write_bytes(original)
