"""Parquet files as units and rows: the columns that are needed, a few megabytes at a time.

A unit lies inside one row group. Reading one that does not start its row group decodes the rows before it again, and
drops them; with at most 16 units in a row group that costs less than making Python objects of the rows.
"""

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hbp_prep.errors import DataError, first_line
from hbp_prep.reasons import Reason, RowRejected

UNITS_PER_ROW_GROUP = 16
BATCH_BYTES = 2 << 20
MAX_BATCH_ROWS = 8192
_BUFFER_BYTES = 1 << 20


def row_ranges(path: str, unit_bytes: int) -> list[tuple[int, int]]:
    """(first row, row after the last) of the file's units: row groups, cut evenly where they are large.

    A unit has about ``max(unit_bytes, uncompressed bytes of the row group / 16)`` bytes.

    Raises:
        DataError: the file is not valid Parquet.
    """
    metadata = _open(path).metadata
    ranges = []
    first = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        num_units = min(UNITS_PER_ROW_GROUP, max(1, -(-group.total_byte_size // unit_bytes)), group.num_rows)
        cuts = [first + part * group.num_rows // num_units for part in range(num_units + 1)] if num_units else []
        ranges += list(pairwise(cuts))
        first += group.num_rows
    return ranges


def column_names(path: str) -> list[str]:
    """Names of the file's columns."""
    return list(_open(path).schema_arrow.names)


def read_rows(path: str, start: int, stop: int, columns: Collection[str]) -> Iterator[tuple[int, Any]]:
    """(row number, row) of the rows from ``start`` to ``stop``; a row is a dictionary of those of ``columns`` that the
    file has, or a RowRejected where a value cannot be had (text that is no UTF-8).

    Raises:
        DataError: the file is damaged.
    """
    file = _open(path)
    index, group_start = _row_group_of(file.metadata, start)
    group = file.metadata.row_group(index)
    bytes_per_row = max(1, group.total_byte_size // max(1, group.num_rows))
    batch_rows = max(1, min(MAX_BATCH_ROWS, BATCH_BYTES // bytes_per_row))
    names = wanted_names(path, file.schema_arrow.names, columns)
    batches = file.iter_batches(batch_rows, row_groups=[index], columns=names, use_threads=False)
    first = group_start
    while first < stop:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: row group {index} cannot be read ({first_line(error)})") from error
        if batch is None:
            raise DataError(f"{path}: row group {index} has fewer rows than it says; the file is damaged")
        wanted = batch.slice(max(0, start - first), stop - max(start, first)) if first + len(batch) > start else None
        if wanted is not None:
            yield from enumerate(to_rows(wanted), max(start, first))
        first += len(batch)


def wanted_names(path: str, names: Collection[str], columns: Collection[str]) -> list[str]:
    """Those of a file's column names that are among ``columns``.

    Raises:
        DataError: two of them are the same.
    """
    wanted = [name for name in names if name in columns]
    if len(wanted) > len(set(wanted)):
        raise DataError(f"{path}: two columns have the same name, among {', '.join(sorted(set(wanted)))}; rename one")
    return wanted


def to_rows(batch: pa.RecordBatch) -> list[Any]:
    """One Python object per row: a dictionary, or a RowRejected where a value cannot be had."""
    try:
        return batch.to_pylist()
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return [_to_row(batch.slice(index, 1)) for index in range(len(batch))]


def _to_row(row: pa.RecordBatch) -> Any:
    try:
        return row.to_pylist()[0]
    except UnicodeDecodeError as error:
        return RowRejected(Reason.INVALID_UTF8, f"a text column: {error.reason} at byte {error.start}")
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        return RowRejected(Reason.BAD_ROW, f"a value cannot be read ({first_line(error)})")


def _open(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a valid Parquet file ({first_line(error)})") from error


def _row_group_of(metadata: pq.FileMetaData, row: int) -> tuple[int, int]:
    first = 0
    for index in range(metadata.num_row_groups):
        num_rows = metadata.row_group(index).num_rows
        if first <= row < first + num_rows:
            return index, first
        first += num_rows
    raise AssertionError(f"row {row} is beyond the file's {first} rows")
