"""Which row format each file of a source has, from its first rows: decided once, said aloud."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from hbp_prep.corpus.formats import (
    PREFERENCE_COLUMNS,
    ROW_FORMATS,
    is_verdict,
    row_format,
)
from hbp_prep.corpus.messages import ROLES
from hbp_prep.corpus.read import as_expected, column_names, read_values
from hbp_prep.corpus.renames import MESSAGE_KEYS
from hbp_prep.corpus.types import CorpusFile, SourceSpec, Unit
from hbp_prep.errors import ConfigError, DataError
from hbp_prep.reasons import RowRejected
from hbp_prep.suggest import did_you_mean

_SAMPLED_ROWS = 100
_LEAST_SAMPLED_ROWS_OF_FILE = 8
_SHOWN_COLUMNS = 20
_KNOWN_ROLES = tuple(dict.fromkeys(ROLES.values()))
_REMARKS = {
    "preference": " (of every pair, the chosen answer)",
    "oasst": " (of every tree, the path of the best ranks)",
    "text": " (every token is trained, no chat template)",
}


def check_format_settings(source: SourceSpec) -> None:
    """Refuse an unknown row format, and renamed columns that it does not read.

    Raises:
        ConfigError: naming the nearest known name.
    """
    formats = list(ROW_FORMATS.values()) if source.format == "auto" else [row_format(source.format)]
    known = {column for one in formats for column in one.columns} | {*MESSAGE_KEYS}
    for expected in source.columns:
        if expected not in known:
            raise ConfigError(
                f"source {source.name!r}: columns: format {source.format!r} reads no column {expected!r}"
                f"{did_you_mean(expected, known)}"
            )
    for name, role in source.roles.items():
        if role not in _KNOWN_ROLES:
            raise ConfigError(
                f"source {source.name!r}: roles: {name!r} cannot be {role!r}{did_you_mean(role, _KNOWN_ROLES)}"
            )


def detect_formats(source: SourceSpec, first_units: Sequence[tuple[CorpusFile, Unit]]) -> tuple[list[str], str]:
    """The row format that most of each file's first rows have, and what to tell the user.

    About 100 rows are looked at, at least 8 of each file. A file none of whose first rows fit any format gets the one
    that most rows of its source have, so that its rows are rejected one by one.

    Args:
        first_units: Each file that has rows, with its first unit.

    Returns:
        One format per file, and a remark such as ``format messages (detected)``.

    Raises:
        DataError: no format fits any row, or they hold verdicts on answers.
    """
    num_sampled = max(_LEAST_SAMPLED_ROWS_OF_FILE, _SAMPLED_ROWS // len(first_units))
    rows_of_file = [list(_first_rows(source, file, unit, num_sampled)) for file, unit in first_units]
    found = [row for file_rows in rows_of_file for row in file_rows]
    rows_of_file = [[_expected(row, source) for row in file_rows] for file_rows in rows_of_file]
    rows = [row for file_rows in rows_of_file for row in file_rows]
    values = [row for row in rows if not isinstance(row, RowRejected)]
    if not values:
        raise DataError(
            f"source {source.name!r}: none of its first {len(rows)} rows can be read; the first fault is: {rows[0]}"
        )
    if any(map(is_verdict, values)):
        raise DataError(
            f"source {source.name!r}: its rows are preference data (a label), and hold answers that must not be "
            "learnt; to train on them all the same, name the format instead of auto"
        )
    overall = _votes(rows)
    if not overall:
        raise DataError(_no_format(source, first_units, [row for row in found if not isinstance(row, RowRejected)]))
    formats = [_most(_votes(file_rows) or overall) for file_rows in rows_of_file]
    num_fitting = sum(_votes(file_rows)[name] for file_rows, name in zip(rows_of_file, formats, strict=True))
    doubt = "" if num_fitting == len(rows) else f": {num_fitting} of the first {len(rows)} rows fit"
    return formats, f"{_told(formats)} (detected{doubt})"


def _votes(rows: Sequence[Any]) -> Counter[str]:
    return Counter(name for row in rows if not isinstance(row, RowRejected) and (name := _format_of(row)) is not None)


def _most(votes: Counter[str]) -> str:
    return next(name for name in ROW_FORMATS if votes[name] == max(votes.values()))


def _told(formats: Sequence[str]) -> str:
    counts = Counter(formats)
    if len(counts) == 1:
        return f"format {formats[0]}{_REMARKS.get(formats[0], '')}"
    return "formats " + ", ".join(f"{name} in {count} file{'s' * (count > 1)}" for name, count in counts.most_common())


def _format_of(row: Any) -> str | None:
    return next((name for name, one in ROW_FORMATS.items() if one.detect(row)), None)


def _first_rows(source: SourceSpec, file: CorpusFile, unit: Unit, num_rows: int) -> Iterator[Any]:
    names = {column for one in ROW_FORMATS.values() for column in one.columns} | {*PREFERENCE_COLUMNS}
    columns = {source.columns.get(name, name) for name in names}
    for _, _, row in islice(read_values(file, unit, columns), num_rows):
        yield row


def _expected(row: Any, source: SourceSpec) -> Any:
    return row if isinstance(row, RowRejected) else as_expected(row, source)


def _no_format(source: SourceSpec, first_units: Sequence[tuple[CorpusFile, Unit]], values: list[Any]) -> str:
    found: dict[str, None] = {}
    for file, _ in first_units:
        if file.is_columnar:
            found |= dict.fromkeys(column_names(file))
    for row in values:
        found |= dict.fromkeys(row if isinstance(row, dict) else ["(a row that is no object)"])
    shown = [name[: _SHOWN_COLUMNS * 2] for name in list(found)[:_SHOWN_COLUMNS]]
    more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
    formats = "; ".join(f"{one.name} ({one.needs})" for one in ROW_FORMATS.values())
    return (
        f"source {source.name!r}: no row format fits its rows. Columns found: {', '.join(shown)}{more}. "
        f"Known formats and what they need: {formats}. Where the columns have other names, give them under columns"
    )
