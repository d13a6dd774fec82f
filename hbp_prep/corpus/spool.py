"""The spool: the plain content of remote and compressed files, on this machine's disk.

A compressed stream can be read from its beginning only, and a remote file is slow to seek in. So each such file is
read once, in order, into the work folder; from there on it is a plain file like any other: cut into units by content,
read by any worker from any unit's start, checked for changes, resumed. The alternative, to decompress from the
beginning for every unit, costs half a file a unit; one unit per file would lose the whole file at a crash.

Cost: one pass (gzip 300 MB/s, zstd 800 MB/s on one core), one file per task, and as much disk as the content has bytes,
about what its tokens take in the token store. Memory: one chunk, whatever the file expands to.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from hbp_prep.corpus.paths import COMPRESSIONS, compression_of
from hbp_prep.corpus.remote import is_remote, open_remote, signature
from hbp_prep.corpus.types import FileSignature
from hbp_prep.errors import DataError
from hbp_prep.files import atomic_write, read_error

_CHUNK_BYTES = 1 << 20
# Chat text shrinks 3 to 20 times. Beyond this, once the content is large, it is taken for a decompression bomb.
MAX_EXPANSION = 200
_ALWAYS_ALLOWED_BYTES = 64 << 20
# Left free on the disk for everything else that runs there.
_RESERVED_BYTES = 256 << 20


def needs_spool(path: str) -> bool:
    """Whether the file cannot be read in place."""
    return is_remote(path) or compression_of(path) is not None


def spool_path(folder: Path, path: str) -> Path:
    """Where the content of ``path`` lies in the spool: a name that its address alone decides."""
    name = path.rsplit("/", 1)[-1]
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return folder / f"{sha256(path.encode()).hexdigest()[:16]}-{name[-80:]}"


def signature_of(path: str) -> FileSignature:
    """What the file system, local or remote, says of ``path`` now.

    Raises:
        DataError: it is gone, or cannot be asked.
    """
    if is_remote(path):
        return signature(path)
    try:
        return FileSignature.of(os.stat(path))
    except OSError as error:
        raise read_error(path, error) from error


def fetch(path: str, folder: Path) -> FileSignature:
    """Bring the content of ``path`` into the spool, atomically; returns the signature of what was read.

    Raises:
        DataError: it cannot be read, is damaged or cut short, changes while it is read, expands out of all proportion,
            or does not fit on the disk.
    """
    before = signature_of(path)
    final = spool_path(folder, path)
    most_bytes = max(_ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * before.size_bytes)
    num_bytes = 0
    with _opened(path) as raw, atomic_write(final) as target:
        for chunk in _chunks(raw, path):
            num_bytes += len(chunk)
            if num_bytes > most_bytes and compression_of(path):
                raise DataError(
                    f"{path}: expands to more than {MAX_EXPANSION} times its size, as decompression bombs do; "
                    "if it is right, unpack it and name the plain file"
                )
            if shutil.disk_usage(folder).free < _RESERVED_BYTES:
                raise DataError(
                    f"{path}: its content does not fit on the disk of {folder}; free some space, or choose an output "
                    "folder elsewhere"
                )
            target.write(chunk)
    if signature_of(path) != before:
        raise DataError(f"{path} changed while it was read; run again when nothing writes to it")
    return before


def _chunks(raw: BinaryIO, path: str) -> Iterator[bytes]:
    """The content, decompressed, in pieces of at most 1 MiB; all members of a file of several."""
    compression = compression_of(path)
    try:
        stream = raw if compression is None else pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), compression)
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read ({error}); the file is damaged or cut short") from error


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if is_remote(path):
        with open_remote(path) as handle:
            yield handle
        return
    try:
        handle = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise read_error(path, error) from error
    with handle:
        yield handle
