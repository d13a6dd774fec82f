"""The token store: one Arrow file per unit, written once, atomically, and then memory-mapped.

A file knows the fingerprint of all that made it and the checksum of its own bytes, so that a later run takes it over
only if nothing has changed. Reading copies nothing; the pages that were touched stay in memory until
:meth:`TokenStore.release`.
"""

import hashlib
import json
import mmap
from collections import OrderedDict
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbp_prep.errors import DataError
from hbp_prep.files import write_bytes
from hbp_prep.reasons import RowRejected
from hbp_prep.tokenization.encoding import EncodedSample

STORE_VERSION = 3
UNIT_PATTERN = "unit-*.arrow"
_MAX_OPEN_UNITS = 256

_FINGERPRINT_KEY = b"hbp.fingerprint"
_VERSION_KEY = b"hbp.store_version"
_COUNTS_KEY = b"hbp.counts"
_SEAL_KEY = b"hbp.seal"
_UNSEALED = b"0" * 64

SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("index_in_unit", pa.int32(), nullable=False),
        pa.field("original_id", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("input_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("loss_mask", pa.list_(pa.bool_()), nullable=False),
    ]
)


@dataclass(frozen=True, kw_only=True)
class UnitCounts:
    """Sums over one unit's selected rows.

    Attributes:
        num_special_texts: Texts of special tokens in the strings of accepted rows.
    """

    num_rows: int
    num_accepted: int
    num_tokens: int
    num_loss_tokens: int
    num_special_texts: int


def unit_path(folder: Path, index: int) -> Path:
    """Where unit ``index`` of the corpus is stored."""
    return folder / f"unit-{index:06d}.arrow"


def read_counts(path: Path, fingerprint: str) -> UnitCounts | None:
    """The counts of a stored unit if it was made by exactly this; ``None`` if it is missing, damaged or another."""
    try:
        data = path.read_bytes()
        metadata = pa.ipc.open_file(pa.BufferReader(data)).schema.metadata or {}
    except (OSError, pa.ArrowException):
        return None
    if metadata.get(_FINGERPRINT_KEY) != fingerprint.encode() or metadata.get(_VERSION_KEY) != b"%d" % STORE_VERSION:
        return None
    seal = metadata.get(_SEAL_KEY, b"")
    if len(seal) != len(_UNSEALED) or _seal(_exchange(data, seal, _UNSEALED)) != seal:
        return None
    return UnitCounts(**json.loads(metadata[_COUNTS_KEY]))


def _seal(unsealed: bytes) -> bytes:
    """SHA-256, as hexadecimal digits, of a file whose own seal is replaced by zeros."""
    return hashlib.sha256(unsealed).hexdigest().encode()


def _exchange(data: bytes, old: bytes, new: bytes) -> bytes:
    """Put another seal in: the schema's metadata stands first and, again, last in a file; what lies between is data."""
    changed = bytearray(data)
    for position in (data.find(old), data.rfind(old)):
        changed[position : position + len(old)] = new
    return bytes(changed)


class UnitWriter:
    """Gathers one unit's rows, in order, and writes them as one file. Memory: about 15 bytes a token."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._indices: list[int] = []
        self._original_ids: list[str | None] = []
        self._reasons: list[str | None] = []
        self._details: list[str | None] = []
        self._lengths: list[int] = []
        self._ids: list[NDArray[np.int32]] = []
        self._masks: list[NDArray[np.bool_]] = []
        self._num_special_texts = 0

    def add(self, row: int, index: int, original_id: str | None, result: EncodedSample | RowRejected) -> None:
        """Append one row: its number in the file, its index within the unit, and what became of it."""
        self._rows.append(row)
        self._indices.append(index)
        self._original_ids.append(_storable(original_id))
        if isinstance(result, RowRejected):
            self._reasons.append(result.reason)
            self._details.append(_storable(result.detail))
            self._lengths.append(0)
            return
        self._reasons.append(None)
        self._details.append(None)
        self._lengths.append(len(result.input_ids))
        self._ids.append(result.input_ids)
        self._masks.append(result.loss_mask)
        self._num_special_texts += result.num_special_texts

    def write(self, path: Path, fingerprint: str) -> UnitCounts:
        """Commit the file.

        Raises:
            DataError: it cannot be written.
        """
        ids = np.concatenate([np.zeros(0, np.int32), *self._ids])
        mask = np.concatenate([np.zeros(0, np.bool_), *self._masks])
        counts = UnitCounts(
            num_rows=len(self._rows),
            num_accepted=len(self._ids),
            num_tokens=len(ids),
            num_loss_tokens=int(np.count_nonzero(mask)),
            num_special_texts=self._num_special_texts,
        )
        offsets = pa.array(np.concatenate([[0], np.cumsum(self._lengths, dtype=np.int64)]).astype(np.int32))
        columns = [
            pa.array(self._rows, pa.int64()),
            pa.array(self._indices, pa.int32()),
            pa.array(self._original_ids, pa.string()),
            pa.array(self._reasons, pa.string()),
            pa.array(self._details, pa.string()),
            pa.ListArray.from_arrays(offsets, pa.array(ids)),
            pa.ListArray.from_arrays(offsets, pa.array(mask)),
        ]
        metadata = {
            _FINGERPRINT_KEY: fingerprint.encode(),
            _VERSION_KEY: b"%d" % STORE_VERSION,
            _COUNTS_KEY: json.dumps(asdict(counts)).encode(),
            _SEAL_KEY: _UNSEALED,
        }
        schema = SCHEMA.with_metadata(metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch(columns, schema=schema))
        unsealed = sink.getvalue().to_pybytes()
        write_bytes(path, _exchange(unsealed, _UNSEALED, _seal(unsealed)))
        return counts


class StoredUnit:
    """One memory-mapped unit of N rows.

    Attributes:
        batch: Its columns.
        token_offsets: int64[N + 1]; row i's tokens are ``ids[token_offsets[i]:token_offsets[i + 1]]``.
        ids: int32[tokens], all rows' ids, a view of the file.
    """

    def __init__(self, path: Path) -> None:
        try:
            with open(path, "rb") as handle:
                self._map = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
            self.batch = pa.ipc.open_file(pa.py_buffer(self._map)).get_batch(0)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DataError(f"{path}: the token store is damaged or incomplete ({error}); run again") from error
        id_lists = self.batch.column("input_ids")
        self.token_offsets = id_lists.offsets.to_numpy().astype(np.int64)
        self.ids: NDArray[np.int32] = id_lists.values.to_numpy()
        bits = self.batch.column("loss_mask").values.buffers()[1]
        self._mask_bits = np.zeros(0, np.uint8) if bits is None else np.frombuffer(bits, np.uint8)

    def mask(self, start: int, stop: int) -> NDArray[np.bool_]:
        """bool[stop - start], the loss mask of tokens [start, stop) of the unit; unpacks these alone."""
        first_byte = start // 8
        bits = np.unpackbits(self._mask_bits[first_byte : (stop + 7) // 8], bitorder="little")
        return bits[start - 8 * first_byte : stop - 8 * first_byte].view(np.bool_)

    @property
    def original_ids(self) -> pa.StringArray:
        """The rows' own ids, null where a row has none."""
        return self.batch.column("original_id")

    def release(self) -> None:
        """Give the mapped pages back; they are read again from the file when touched."""
        self._map.madvise(mmap.MADV_DONTNEED)


class TokenStore:
    """Reads a folder of units; each is mapped when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._units: OrderedDict[int, StoredUnit] = OrderedDict()

    def unit(self, unit: int) -> StoredUnit:
        """The unit of that index.

        Raises:
            DataError: its file is missing or damaged.
        """
        stored = self._units.get(unit)
        if stored is None:
            stored = StoredUnit(unit_path(self._folder, unit))
            self._units[unit] = stored
            if len(self._units) > _MAX_OPEN_UNITS:
                self._units.popitem(last=False)
        else:
            self._units.move_to_end(unit)
        return stored

    def tokens(self, unit: int, index: int) -> NDArray[np.int32]:
        """int32[n], the token ids of row ``index`` of the unit's file; a read-only view."""
        stored = self.unit(unit)
        return stored.ids[stored.token_offsets[index] : stored.token_offsets[index + 1]]

    def mask(self, unit: int, index: int) -> NDArray[np.bool_]:
        """bool[n], the loss mask of row ``index`` of the unit's file."""
        stored = self.unit(unit)
        return stored.mask(int(stored.token_offsets[index]), int(stored.token_offsets[index + 1]))

    def release(self) -> None:
        """Give back the memory of all pages read so far. Views stay valid."""
        for stored in self._units.values():
            stored.release()


def _storable(text: str | None) -> str | None:
    """Arrow strings are UTF-8; a lone surrogate becomes a question mark."""
    return text if text is None or text.isascii() else text.encode("utf-8", "replace").decode()
