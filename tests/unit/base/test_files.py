"""Files are whole or absent."""

import errno
import hashlib
from pathlib import Path

import pytest

from hbp_prep import files
from hbp_prep.errors import DataError
from hbp_prep.fingerprint import fingerprint


def test_a_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file"
    files.write_bytes(path, b"old")
    files.write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert [item.name for item in path.parent.iterdir()] == ["file"]
    assert files.sha256_file(path) == hashlib.sha256(b"new").hexdigest()


def test_an_error_while_writing_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_bytes(path, b"old")
    with pytest.raises(RuntimeError), files.atomic_write(path) as handle:
        handle.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("code", "words"), [(errno.ENOSPC, "no space left"), (errno.EACCES, "permissions")])
def test_a_failed_write_is_a_sentence(tmp_path: Path, code: int, words: str) -> None:
    with pytest.raises(DataError, match=words), files.atomic_write(tmp_path / "file") as handle:
        handle.write(b"half")
        raise OSError(code, "failed")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        files.write_bytes(tmp_path / "file" / "below", b"x")


def test_equal_values_give_equal_json_bytes(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a", {"b": 1, "a": [1.5, "é"]})
    files.write_json(tmp_path / "b", {"a": [1.5, "é"], "b": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(ValueError, match="nan"):
        files.write_json(tmp_path / "c", {"a": float("nan")})
    assert not (tmp_path / "c").exists()


def test_stray_temporary_files_are_removed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / f"file.1{files.TEMP_SUFFIX}").touch()
    (tmp_path / "keep").touch()
    files.remove_stray_temps(tmp_path)
    assert sorted(item.name for item in tmp_path.rglob("*")) == ["keep", "sub"]


def test_fingerprints_tell_values_apart() -> None:
    values = [{}, [], "", 0, 1, True, None, 1.5, "1", ["a", "b"], ["ab"], {"a": ["b"]}, {"a": "b"}, [[], []], [[[]]]]
    assert len({fingerprint(value) for value in values}) == len(values)
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    with pytest.raises(TypeError):
        fingerprint({"a": {1, 2}})  # type: ignore[dict-item]
