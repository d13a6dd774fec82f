"""The rows of one unit as conversations, in order; what cannot be used comes out as a RowRejected, never as a crash.

Cost: one core reads and converts 90 to 700 MB/s (short rows to long ones; Parquet 100). Memory: one row (at most
``rowstream.MAX_ROW_BYTES``) or one Parquet batch of about 2 MiB.
"""

import os
import re
from collections.abc import Collection, Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from hbp_prep.corpus import arrow, parquet
from hbp_prep.corpus.formats import (
    PREFERENCE_COLUMNS,
    RowFormat,
    is_preference_pair,
    is_verdict,
    row_format,
)
from hbp_prep.corpus.renames import MESSAGE_KEYS, rename_columns, rename_keys
from hbp_prep.corpus.rowstream import MAX_ROW_BYTES, RowStream, read_rows
from hbp_prep.corpus.types import Conversation, CorpusFile, FileSignature, SourceSpec, Unit
from hbp_prep.errors import DataError
from hbp_prep.files import read_error
from hbp_prep.reasons import Reason, RowRejected

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89abABc-fC-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_unit(
    file: CorpusFile, source: SourceSpec, unit: Unit, selected: NDArray[np.bool_] | None = None
) -> Iterator[tuple[int, int, Conversation | RowRejected]]:
    """(row number in the file, index within the unit, result) for every selected row of the unit, in order.

    Args:
        file: The unit's file, as scanned.
        source: The file's source; its ``columns`` rename before the row format reads.
        unit: What to read.
        selected: bool[unit.num_rows], the rows wanted; ``None``: all. Others are not parsed.

    Raises:
        DataError: the file is gone, damaged, or another than the scanned one.
    """
    row_format_of_file = row_format(file.row_format)
    columns = columns_to_read(row_format_of_file, source)
    for number, index, row in read_values(file, unit, columns, selected):
        yield number, index, row if isinstance(row, RowRejected) else convert(row_format_of_file, row, source)


def columns_to_read(row_format_of_file: RowFormat, source: SourceSpec) -> set[str]:
    """The file's names of the columns that the row format reads."""
    names = {*row_format_of_file.columns, *(PREFERENCE_COLUMNS if source.format == "auto" else ())}
    return {source.columns.get(name, name) for name in names}


def read_values(
    file: CorpusFile, unit: Unit, columns: Collection[str], selected: NDArray[np.bool_] | None = None
) -> Iterator[tuple[int, int, Any]]:
    """As :func:`read_unit`, but rows are plain values (RowRejected where there is none), not yet conversations.

    ``columns`` are read of Parquet and Arrow files; rows of JSON files come whole.
    """
    _check_unchanged(file)
    rows = _columnar_rows(file, unit, columns) if file.is_columnar else _json_rows(file, unit)
    index = -1
    for index, (number, row) in enumerate(rows):
        if index >= unit.num_rows:
            break
        if selected is None or selected[index]:
            yield number, index, _parse(*row) if isinstance(row, tuple) else row
    if index + 1 != unit.num_rows:
        raise DataError(
            f"{file.path} has changed since it was scanned (other rows than then); run again from the start"
        )
    _check_unchanged(file)


def column_names(file: CorpusFile) -> list[str]:
    """Names of the columns of a Parquet or Arrow file."""
    if file.file_format == "parquet":
        return parquet.column_names(file.local_path)
    return arrow.column_names(file.local_path, file.file_format)


def as_expected(row: Any, source: SourceSpec) -> Any:
    """The row under the names that row formats expect."""
    if source.columns:
        row = rename_columns(row, source.columns)
    if source.roles or not source.columns.keys().isdisjoint(MESSAGE_KEYS):
        row = rename_keys(row, source.columns, source.roles)
    return row


def convert(row_format_of_file: RowFormat, row: Any, source: SourceSpec) -> Conversation | RowRejected:
    """The row as a conversation, or why it is none."""
    takes_pairs = row_format_of_file.name == "preference"
    try:
        row = as_expected(row, source)
        if source.format == "auto" and (is_verdict(row) or (not takes_pairs and is_preference_pair(row))):
            return RowRejected(Reason.BAD_ROW, "preference data; to train on it all the same, name the source's format")
        return row_format_of_file.convert(row)
    except RowRejected as rejected:
        return rejected


def _columnar_rows(file: CorpusFile, unit: Unit, columns: Collection[str]) -> Iterator[tuple[int, Any]]:
    if file.file_format == "parquet":
        return parquet.read_rows(file.local_path, unit.start, unit.stop, columns)
    return arrow.read_rows(file.local_path, file.file_format, unit.start, unit.stop, columns)


def _json_rows(file: CorpusFile, unit: Unit) -> Iterator[tuple[int, Any]]:
    """(row number, a RowRejected, or the arguments of :func:`_parse`, so that rows not wanted stay unparsed)."""
    is_array = file.file_format == "json"
    stream = RowStream(file.file_format, at_head=unit.first_row == 0, first_row=unit.first_row)
    try:
        with open(file.local_path, "rb") as handle:
            for number, offset, row in read_rows(handle, stream, unit.start, unit.stop):
                where = f"element at byte {offset}: " if is_array else ""
                if row is None:
                    yield number, RowRejected(Reason.BAD_ROW, f"{where}the row is longer than {MAX_ROW_BYTES:,} bytes")
                else:
                    yield number, (row, where)
    except OSError as error:
        raise read_error(file.path, error) from error
    fault = stream.fault_at_end(file.size_bytes) if unit.stop == file.size_bytes else None
    if fault is not None:
        yield stream.next_number, RowRejected(Reason.INVALID_JSON, f"{fault[1]} (at byte {fault[0]})")


def _parse(row: bytes, where: str) -> Any:
    """The JSON value of one row, or why there is none."""
    try:
        return orjson.loads(row)
    except orjson.JSONDecodeError as error:
        fault = f"{where}{error.msg} (at character {error.pos})"
    try:
        row.decode()
    except UnicodeDecodeError as error:
        return RowRejected(Reason.INVALID_UTF8, f"{where}{error.reason} (at byte {error.start} of the row)")
    surrogate = _lone_surrogate(row)
    if surrogate is not None:
        return RowRejected(Reason.LONE_SURROGATE, f"{where}\\u{ord(surrogate):04x} is half a character")
    return RowRejected(Reason.INVALID_JSON, fault)


def _lone_surrogate(row: bytes) -> str | None:
    """The first lone surrogate of a row that is valid JSON apart from having one."""
    if not _SURROGATE_ESCAPE.search(row):
        return None
    try:
        value = JSONDecoder().decode(row.decode())
    except (JSONDecodeError, ValueError, RecursionError):
        return None
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str) and (match := _LONE_SURROGATE.search(item)):
            return match[0]
        if isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            pending += item
    return None


def _check_unchanged(file: CorpusFile) -> None:
    try:
        now = FileSignature.of(os.stat(file.local_path))
    except OSError as error:
        raise read_error(file.path, error) from error
    if now.size_bytes != file.size_bytes or file.signature not in (None, now):
        raise DataError(
            f"{file.path} has changed since it was scanned ({now.size_bytes:,} bytes now, {file.size_bytes:,} then); "
            "run again from the start"
        )
