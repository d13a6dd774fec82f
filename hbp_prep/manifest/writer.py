"""Writing a prepared folder: shards, tables, and the manifest last. Every file is whole or absent.

Files are hashed while they stream out, so nothing is read back. No timestamps: equal input gives equal bytes.
"""

import hashlib
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbp_prep import files
from hbp_prep.manifest.document import write_manifest
from hbp_prep.manifest.tables import SHARD_SCHEMA, with_metadata

__all__ = ["BATCH_TOKENS", "PackBatch", "ShardWriter", "WrittenFile", "write_manifest", "write_table"]

BATCH_TOKENS = 1 << 22
"""Tokens that a record batch of a shard holds at most (one longer pack has a batch of its own)."""


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """What was committed."""

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PackBatch:
    """P packs of S segments and T tokens, flat and in order.

    Attributes:
        pack_ids: int64[P].
        segment_offsets: int64[P + 1]; pack p has segments ``segment_offsets[p]`` to ``segment_offsets[p + 1] - 1``.
        sample_ids: int64[S].
        seq_lengths: int32[S], each at least 1.
        input_ids: int32[T].
        loss_mask: bool[T].
    """

    pack_ids: NDArray[np.int64]
    segment_offsets: NDArray[np.int64]
    sample_ids: NDArray[np.int64]
    seq_lengths: NDArray[np.int32]
    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]


class _HashingFile:
    """The file object that Arrow writes to: counts and hashes what passes through."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self._digest = hashlib.sha256()
        self.num_bytes = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._handle.write(data)
        self._digest.update(data)
        self.num_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.num_bytes

    def flush(self) -> None:
        self._handle.flush()

    def close(self) -> None:
        self.closed = True

    def sha256(self) -> str:
        return self._digest.hexdigest()


class _ArrowFileWriter:
    """Record batches into one atomic, hashed Arrow file; a context manager whose clean exit commits."""

    def __init__(self, path: Path | str, schema: pa.Schema) -> None:
        self._path = Path(path)
        self._schema = schema
        self._num_rows = 0
        self._stack = ExitStack()
        self.written: WrittenFile | None = None

    def __enter__(self) -> "_ArrowFileWriter":
        with ExitStack() as stack:
            self._sink = _HashingFile(stack.enter_context(files.atomic_write(self._path)))
            self._writer = stack.enter_context(pa.ipc.new_file(pa.PythonFile(self._sink, mode="w"), self._schema))
            self._stack = stack.pop_all()
        return self

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Append a batch; its arrays may be reused when this returns."""
        self._writer.write_batch(batch)
        self._num_rows += batch.num_rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            self.written = WrittenFile(rows=self._num_rows, bytes=self._sink.num_bytes, sha256=self._sink.sha256())


class ShardWriter:
    """Writes one data shard, a batch of packs at a time. A clean exit of the context commits the file.

    Example::

        with ShardWriter(path, group="16K", fingerprint=fingerprint) as writer:
            writer.write(batch)
        entry = writer.written
    """

    def __init__(self, path: Path | str, *, group: str, fingerprint: str) -> None:
        self._schema = with_metadata(SHARD_SCHEMA, fingerprint=fingerprint, group=group)
        self._file = _ArrowFileWriter(path, self._schema)

    @property
    def written(self) -> WrittenFile:
        """Rows, bytes and checksum, once the context has ended cleanly."""
        assert self._file.written is not None, "the shard is not committed yet"
        return self._file.written

    def __enter__(self) -> "ShardWriter":
        self._file.__enter__()
        return self

    def write(self, packs: PackBatch) -> None:
        """Append packs; the three derived columns are computed here. The arrays may be reused when this returns."""
        self._file.write_batch(_record_batch(packs, self._schema))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)


def write_table(path: Path | str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> WrittenFile:
    """Write record batches as one Arrow file, atomically.

    Raises:
        DataError: the disk is full, or the folder cannot be written.
    """
    with _ArrowFileWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert writer.written is not None
    return writer.written


def _record_batch(packs: PackBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The shard's columns. A batch holds less than 2^31 tokens, so ``list`` is wide enough."""
    token_ends = np.concatenate([[0], np.cumsum(packs.seq_lengths, dtype=np.int64)])
    token_offsets = token_ends[packs.segment_offsets]
    assert token_ends[-1] == len(packs.input_ids) == len(packs.loss_mask) < 2**31
    loss_of_segments = np.add.reduceat(packs.loss_mask, token_ends[:-1], dtype=np.int32)
    loss_ends = np.concatenate([[0], np.cumsum(loss_of_segments, dtype=np.int64)])
    cost_ends = np.concatenate([[0], np.cumsum(packs.seq_lengths.astype(np.int64) ** 2)])
    columns = [
        pa.array(packs.pack_ids),
        _lists(token_offsets, packs.input_ids),
        _lists(token_offsets, packs.loss_mask),
        _lists(packs.segment_offsets, packs.seq_lengths),
        _lists(packs.segment_offsets, packs.sample_ids),
        pa.array(np.diff(token_offsets).astype(np.int32)),
        pa.array(np.diff(loss_ends[packs.segment_offsets]).astype(np.int32)),
        pa.array(np.diff(cost_ends[packs.segment_offsets])),
    ]
    return pa.record_batch(columns, schema=schema)


def _lists(offsets: NDArray[np.int64], values: NDArray[np.generic]) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))
