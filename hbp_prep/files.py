"""Files that are whole or absent: temporary file, fsync, rename. And checksums.

Every file of a prepared folder is committed by :func:`commit`, so that a crash at any moment leaves the old file, the
new file, or a stray ``*.tmp`` that the next run removes; never a part that looks whole.
"""

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from hbp_prep.errors import DataError

TEMP_SUFFIX = ".tmp"
_TEMP_NAME = re.compile(rf".+\.\d+{re.escape(TEMP_SUFFIX)}", re.DOTALL)
_CHUNK_BYTES = 1 << 20


def commit(temp: Path, final: Path) -> None:
    """Rename ``temp``, already flushed to disk, to ``final`` and make the rename durable."""
    os.replace(temp, final)
    directory = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def atomic_write(path: Path | str) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path`` for writing bytes; on a clean exit it becomes ``path``, else it is removed.

    Missing parent folders are made.

    Raises:
        DataError: the disk is full, or the folder cannot be written.
    """
    path = Path(path)
    temp = path.with_name(f"{path.name}.{os.getpid()}{TEMP_SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(temp, "wb")  # noqa: SIM115 - closed below, on every way out
    except OSError as error:
        raise write_error(path, error) from error
    try:
        with handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        commit(temp, path)
    except OSError as error:
        temp.unlink(missing_ok=True)
        raise write_error(path, error) from error
    except BaseException:
        temp.unlink(missing_ok=True)
        raise


def write_error(path: Path, error: OSError) -> DataError:
    """The sentence for a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(f"{path}: no space left on the disk; free some and run again with --resume")
    return DataError(f"{path}: cannot be written ({error.strerror or error}); check the folder's permissions")


def read_error(path: Path | str, error: OSError) -> DataError:
    """The sentence for a failed read."""
    return DataError(f"{path}: cannot be read ({error.strerror or error})")


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically."""
    with atomic_write(path) as handle:
        handle.write(data)


def write_json(path: Path | str, value: Any) -> None:
    """Write ``value`` as indented JSON with sorted keys, atomically; equal values give equal bytes. No NaN."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_bytes(path, text.encode() + b"\n")


def sha256_file(path: Path | str) -> str:
    """SHA-256 of the file's bytes, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        while chunk := handle.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def remove_stray_temps(folder: Path) -> None:
    """Remove what an interrupted :func:`atomic_write` left anywhere below ``folder``."""
    for stray in folder.rglob(f"*{TEMP_SUFFIX}"):
        if _TEMP_NAME.fullmatch(stray.name) and not stray.is_dir():
            stray.unlink(missing_ok=True)


def is_unicode(path: str) -> bool:
    """Whether the path can be written down as UTF-8 (file systems allow any bytes)."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
