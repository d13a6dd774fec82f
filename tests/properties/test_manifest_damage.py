"""Any one changed byte, anywhere in a prepared folder, is found; and no reader ever fails in another way than it says."""

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


@st.composite
def changed_bytes(draw, out):
    """``(path, original bytes, changed bytes)``."""
    files = contents(out)
    name = draw(st.sampled_from(sorted(files)))
    offset = draw(st.integers(0, len(files[name]) - 1))
    changed = bytearray(files[name])
    changed[offset] ^= draw(st.integers(1, 255))
    return out / name, files[name], bytes(changed)


@given(data=st.data())
@settings(deadline=None, max_examples=300)
def test_any_changed_byte_is_found_and_its_file_named(out, data):
    path, original, changed = data.draw(changed_bytes(out))
    path.write_bytes(changed)
    try:
        with pytest.raises(ManifestError) as caught:
            verify(out)
        assert path.relative_to(out).as_posix() in str(caught.value)
    finally:
        path.write_bytes(original)


@given(data=st.data())
@settings(deadline=None, max_examples=300)
def test_without_checksums_damage_is_harmless_or_a_clear_error(out, data):
    path, original, changed = data.draw(changed_bytes(out))
    path.write_bytes(changed)
    try:
        examine(out, quick=True)
        reader = ManifestReader(out)
        for rank in range(reader.manifest.world_size):
            list(reader.packs_of_rank(rank))
    except ManifestError as error:
        assert str(error)
    finally:
        path.write_bytes(original)


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
