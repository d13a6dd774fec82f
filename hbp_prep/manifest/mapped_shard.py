"""One memory-mapped data shard: its record batches as flat numpy views, opened when first needed.

A view costs nothing until its pages are touched. Only the loss mask is copied, because Arrow stores bits and readers
want one byte per token.
"""

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbp_prep.errors import ManifestError
from hbp_prep.manifest.schema import ShardEntry
from hbp_prep.manifest.tables import SHARD_SCHEMA, open_arrow, read_batch


class ShardBatch:
    """One record batch of P packs, T tokens and S segments.

    Attributes:
        pack_ids: int64[P].
        token_offsets, segment_offsets: int64[P + 1], into the flat columns.
        num_tokens, num_loss_tokens: int32[P]; attention_cost: int64[P]; as the file states them.
        flat_input_ids: int32[T].
        flat_seq_lengths: int32[S].
        flat_sample_ids: int64[S].
    """

    def __init__(self, path: Path, batch: pa.RecordBatch) -> None:
        self.pack_ids: NDArray[np.int64] = batch.column("pack_id").to_numpy()
        self.token_offsets, self.flat_input_ids = _flat(batch.column("input_ids"))
        self.segment_offsets, self.flat_seq_lengths = _flat(batch.column("seq_lengths"))
        self._id_offsets, self.flat_sample_ids = _flat(batch.column("sample_ids"))
        self._mask_offsets, self._mask_bits, self._first_bit = _bits(batch.column("loss_mask"))
        self.num_tokens: NDArray[np.int32] = batch.column("num_tokens").to_numpy()
        self.num_loss_tokens: NDArray[np.int32] = batch.column("num_loss_tokens").to_numpy()
        self.attention_cost: NDArray[np.int64] = batch.column("attention_cost").to_numpy()
        self._check_offsets(path, self.segment_offsets, self._id_offsets, "not as many sample_ids as seq_lengths")
        self._check_offsets(path, self.token_offsets, self._mask_offsets, "a loss_mask not as long as its input_ids")

    def input_ids(self, row: int) -> NDArray[np.int32]:
        """int32[n], a view of the file."""
        return self.flat_input_ids[self.token_offsets[row] : self.token_offsets[row + 1]]

    def seq_lengths(self, row: int) -> NDArray[np.int32]:
        """int32[s], a view of the file."""
        return self.flat_seq_lengths[self.segment_offsets[row] : self.segment_offsets[row + 1]]

    def sample_ids(self, row: int) -> NDArray[np.int64]:
        """int64[s], a view of the file."""
        return self.flat_sample_ids[self.segment_offsets[row] : self.segment_offsets[row + 1]]

    def loss_mask(self, row: int) -> NDArray[np.bool_]:
        """bool[n]."""
        return self.unpacked_mask(int(self.token_offsets[row]), int(self.token_offsets[row + 1]))

    def unpacked_mask(self, start: int, stop: int) -> NDArray[np.bool_]:
        """bool[stop - start]: the loss mask of the batch's tokens ``start`` to ``stop - 1``."""
        first, last = self._first_bit + start, self._first_bit + stop
        bits = np.unpackbits(self._mask_bits[first // 8 : (last + 7) // 8], bitorder="little")
        return bits[first % 8 : first % 8 + stop - start].view(np.bool_)

    def _check_offsets(self, path: Path, offsets: NDArray[np.int64], others: NDArray[np.int64], fault: str) -> None:
        wrong = np.flatnonzero(offsets != others)
        if len(wrong):
            row = max(int(wrong[0]) - 1, 0)
            raise ManifestError(f"{path}: pack {self.pack_ids[row]} has {fault}")


class MappedShard:
    """A data shard, memory-mapped.

    Raises:
        ManifestError: it is missing, damaged, of another run, or not of the rows that the manifest says.
    """

    def __init__(self, path: Path, entry: ShardEntry, *, group: str, fingerprint: str) -> None:
        self.path = path
        self._reader = open_arrow(path, SHARD_SCHEMA, fingerprint=fingerprint, group=group)
        self._batches: list[ShardBatch] = []
        self._first_rows = [0]
        for index in range(self._reader.num_record_batches):
            batch = read_batch(path, self._reader, index, SHARD_SCHEMA)
            self._batches.append(ShardBatch(path, batch))
            self._first_rows.append(self._first_rows[-1] + batch.num_rows)
        if self._first_rows[-1] != entry.rows:
            raise ManifestError(f"{path} has {self._first_rows[-1]} packs, the manifest says {entry.rows}")

    @property
    def batches(self) -> Sequence[ShardBatch]:
        """All record batches, in order."""
        return self._batches

    def locate(self, row: int) -> tuple[ShardBatch, int]:
        """The record batch that holds ``row``, and the row's number in it.

        Raises:
            ManifestError: the shard has no such row.
        """
        if not 0 <= row < self._first_rows[-1]:
            raise ManifestError(f"{self.path} has rows 0 to {self._first_rows[-1] - 1}, not {row}")
        index = bisect_right(self._first_rows, row) - 1
        return self._batches[index], row - self._first_rows[index]


def _flat(lists: pa.Array) -> tuple[NDArray[np.int64], NDArray[Any]]:
    return lists.offsets.to_numpy().astype(np.int64), lists.values.to_numpy(zero_copy_only=True)


def _bits(lists: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8], int]:
    """Offsets, the bytes that hold the bits, and the bit that offset 0 means."""
    values = lists.values
    data = values.buffers()[1]
    bits = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return lists.offsets.to_numpy().astype(np.int64), bits, values.offset
