"""JSON text files as a stream of rows, for the scan (where are the rows?) and for the reader (what are they?) alike.

Memory: one chunk of 256 KiB and its row offsets (3 MB); the reader besides holds one row, at most ``MAX_ROW_BYTES``.

A JSON array that is damaged loses nothing in silence:

- Damage inside an element makes that element one row, which the parser rejects. Where a quote or a bracket is missing,
  the element reaches as far as its brackets and quotes say, at worst to the end of the file: all of that is one row.
- Text after the closing bracket is one more row, however long, which is rejected.
- A missing closing bracket (a file cut short) is one more row, rejected, at the end of the file.
- Elements without a comma between them are one row, which is rejected; commas without an element between them are none.
"""

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from hbp_prep.corpus import kernels

CHUNK_BYTES = 256 << 10
MAX_ROW_BYTES = 256 << 20  # a longer row is rejected unread: what it takes to hold and parse one row is bounded

Int64 = NDArray[np.int64]


class RowStream:
    """Finds rows in one file of format ``jsonl`` or ``json``, fed with its bytes in order from a row's start."""

    def __init__(self, file_format: str, *, at_head: bool, first_row: int = 0) -> None:
        self._is_array = file_format == "json"
        self._scan = kernels.scan_array if self._is_array else kernels.scan_lines
        self._state = np.zeros(kernels.STATE_SIZE, np.int64)
        self._state[kernels.NUMBER] = first_row
        if self._is_array and not at_head:
            self._state[kernels.MODE] = kernels.ARRAY_BETWEEN
        self._buffers = np.empty((3, 0), np.int64)

    def feed(self, chunk: bytes, offset: int) -> tuple[Int64, Int64, Int64]:
        """Row starts, row ends and row numbers (of the starts) in ``chunk``, which lies at ``offset`` in the file.

        The arrays are valid until the next call. A row that is open at the chunk's end has no end yet.
        """
        places = len(chunk) // 2 + 2
        if self._buffers.shape[1] < places:
            self._buffers = np.empty((3, places), np.int64)
        starts, ends, numbers = self._buffers
        view = np.frombuffer(chunk, np.uint8)
        num_starts, num_ends = self._scan(view, offset, self._state, starts, ends, numbers)
        return starts[:num_starts], ends[:num_ends], numbers[:num_starts]

    def fault_at_end(self, size_bytes: int) -> tuple[int, str] | None:
        """After the file's last byte: offset and kind of what an array has that is no element of it, or ``None``."""
        mode = int(self._state[kernels.MODE])
        if not self._is_array or mode == kernels.ARRAY_CLOSED:
            return None
        if mode == kernels.ARRAY_TRAILING:
            return int(self._state[kernels.DEPTH]), "text after the array's closing ]"
        return size_bytes, "the array's closing ] is missing: the file was cut short"

    @property
    def next_number(self) -> int:
        """The number that the next row would have."""
        return int(self._state[kernels.NUMBER])


def read_chunks(handle: BinaryIO, start: int, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The bytes from ``start`` to ``stop`` (``None``: the end) in chunks, each with its offset."""
    handle.seek(start)
    offset = start
    while stop is None or offset < stop:
        chunk = handle.read(CHUNK_BYTES if stop is None else min(CHUNK_BYTES, stop - offset))
        if not chunk:
            return
        yield offset, chunk
        offset += len(chunk)


def read_rows(handle: BinaryIO, stream: RowStream, start: int, stop: int) -> Iterator[tuple[int, int, bytes | None]]:
    """(row number, offset in the file, bytes) of the rows from ``start`` to ``stop``; ``None`` for a row too long."""
    pending: list[bytes] = []
    num_pending_bytes = 0
    number, begin = 0, -1  # of the open row; begin is -1 when none is open
    for offset, chunk in read_chunks(handle, start, stop):
        starts_array, ends_array, numbers_array = stream.feed(chunk, offset)
        starts, ends, numbers = starts_array.tolist(), ends_array.tolist(), numbers_array.tolist()
        if begin >= 0:
            piece = chunk[: ends[0] - offset] if ends else chunk
            num_pending_bytes += len(piece)
            if num_pending_bytes <= MAX_ROW_BYTES:
                pending.append(piece)
            else:
                pending.clear()
            if not ends:
                continue
            yield number, begin, b"".join(pending) if num_pending_bytes <= MAX_ROW_BYTES else None
            del ends[0]
            begin = -1
        for row_start, row_end, row_number in zip(starts, ends, numbers, strict=False):
            yield row_number, row_start, chunk[row_start - offset : row_end - offset]
        if len(starts) > len(ends):
            number, begin = numbers[-1], starts[-1]
            pending = [chunk[begin - offset :]]
            num_pending_bytes = len(pending[0])
    if begin >= 0:
        yield number, begin, b"".join(pending) if num_pending_bytes <= MAX_ROW_BYTES else None
