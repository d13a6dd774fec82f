"""Arrow IPC files, of either kind (file with a footer, or stream), as units and rows.

A unit is a range of rows: whole record batches, joined while they are small and cut evenly where they are large. The
file is mapped into memory, so batches before the unit cost a look at their headers only (where buffers are compressed,
a stream's batches before the unit are decompressed again; a file's are not). Memory: one record batch.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pyarrow as pa

from hbp_prep.corpus.parquet import BATCH_BYTES, MAX_BATCH_ROWS, to_rows, wanted_names
from hbp_prep.errors import DataError, first_line

_MAGIC = b"ARROW1"


def arrow_format(head: bytes) -> str:
    """``arrow_file`` or ``arrow_stream``, from a file's first bytes."""
    return "arrow_file" if head.startswith(_MAGIC) else "arrow_stream"


def row_ranges(path: str, file_format: str, unit_bytes: int) -> list[tuple[int, int]]:
    """(first row, row after the last) of the file's units, each of about ``unit_bytes``.

    Raises:
        DataError: the file is not valid Arrow IPC.
    """
    cuts = [0]
    num_rows = num_bytes = 0
    for batch in _batches(path, file_format):
        size = batch.nbytes
        if num_bytes and num_bytes + size > unit_bytes:
            cuts.append(num_rows)
            num_bytes = 0
        num_parts = min(max(1, size // unit_bytes), max(1, len(batch)))
        cuts += [num_rows + part * len(batch) // num_parts for part in range(1, num_parts)]
        num_rows += len(batch)
        num_bytes += size // num_parts
    cuts.append(num_rows)
    return [(start, stop) for start, stop in pairwise(cuts) if stop > start]


def column_names(path: str, file_format: str) -> list[str]:
    """Names of the file's columns."""
    with _reader(path, file_format) as reader:
        return list(reader.schema.names)


def read_rows(
    path: str, file_format: str, start: int, stop: int, columns: Collection[str]
) -> Iterator[tuple[int, Any]]:
    """(row number, row) of the rows from ``start`` to ``stop``; see :func:`hbp_prep.corpus.parquet.read_rows`.

    Raises:
        DataError: the file is damaged.
    """
    names = wanted_names(path, column_names(path, file_format), columns)
    first = 0
    for batch in _batches(path, file_format):
        begin, end = max(start, first), min(stop, first + len(batch))
        if begin < end:
            step = max(1, min(MAX_BATCH_ROWS, BATCH_BYTES * len(batch) // max(1, batch.nbytes)))
            wanted = batch.select(names)
            for at in range(begin, end, step):
                yield from enumerate(to_rows(wanted.slice(at - first, min(step, end - at))), at)
        first += len(batch)
        if first >= stop:
            return


def _batches(path: str, file_format: str) -> Iterator[pa.RecordBatch]:
    with _reader(path, file_format) as reader:
        if file_format == "arrow_stream":
            yield from reader
        else:
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)


@contextmanager
def _reader(path: str, file_format: str) -> Iterator[Any]:
    try:
        with pa.memory_map(path) as source:
            opened = pa.ipc.open_stream(source) if file_format == "arrow_stream" else pa.ipc.open_file(source)
            yield opened
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a valid Arrow IPC file ({first_line(error)})") from error
