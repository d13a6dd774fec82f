"""``rejected.arrow``: one line per input row that is not trained on. Written as a stream, counted and checked."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbp_prep.corpus.rowstream import RowStream, read_rows
from hbp_prep.corpus.types import Corpus, CorpusFile, Unit
from hbp_prep.errors import DataError
from hbp_prep.files import atomic_write, read_error
from hbp_prep.manifest.tables import REJECTED_SCHEMA
from hbp_prep.reasons import Reason

_REASONS = tuple(Reason)
_ASKED_FOR = frozenset({Reason.NOT_SELECTED, Reason.DUPLICATE, Reason.TOO_LONG, Reason.TOO_SHORT})
_INDEX_OF_REASON = {reason: index for index, reason in enumerate(_REASONS)}


class RejectedRow(NamedTuple):
    """One line: the row's number in its file, why it is not used, and the particulars."""

    row: int
    reason: str
    detail: str | None


class RejectedWriter:
    """Appends lines unit by unit; the columns' dictionaries are the same in every batch, as the format demands."""

    def __init__(self, writer: pa.RecordBatchFileWriter, corpus: Corpus) -> None:
        self._writer = writer
        self._files = pa.array([file.path for file in corpus.files], pa.string())
        self._sources = pa.array([source.name for source in corpus.sources], pa.string())
        self._reasons = pa.array(_REASONS, pa.string())

    def append(self, *, file: int, source: int, rows: Sequence[RejectedRow]) -> None:
        """Write the lines of one unit, by row number."""
        rows = sorted(rows)
        columns = [
            _constant(file, len(rows), self._files),
            pa.array([row.row for row in rows], pa.int64()),
            _constant(source, len(rows), self._sources),
            _encoded([_INDEX_OF_REASON[Reason(row.reason)] for row in rows], self._reasons),
            pa.array([row.detail for row in rows], pa.string()),
        ]
        self._writer.write_batch(pa.record_batch(columns, schema=REJECTED_SCHEMA))


@contextmanager
def write_rejected(path: Path, corpus: Corpus) -> Iterator[RejectedWriter]:
    """Open ``path`` for writing; it appears, whole, on a clean exit.

    Raises:
        DataError: it cannot be written.
    """
    with atomic_write(path) as handle, pa.ipc.new_file(handle, REJECTED_SCHEMA) as writer:
        rejected = RejectedWriter(writer, corpus)
        rejected.append(file=0, source=0, rows=[])
        yield rejected


def count_rejected(path: Path) -> dict[str, int]:
    """Lines of ``rejected.arrow`` by reason, the most frequent first."""
    counts: Counter[str] = Counter()
    for batch in _batches(path):
        counts.update(batch.column("reason").to_pylist())
    return dict(counts.most_common())


def check_rejected_fraction(path: Path, num_used_rows: Mapping[str, int], max_rejected_fraction: float) -> None:
    """Stop if too large a share of any source's selected rows is faulty.

    Rows left out by weight, limit or length are not faulty: the recipe asked for that.

    Args:
        num_used_rows: By source, distinct input rows that samples come from.

    Raises:
        DataError: with the source, and the count and one example of every reason.
    """
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for batch in _batches(path):
        kinds = list(zip(batch.column("source").to_pylist(), batch.column("reason").to_pylist(), strict=True))
        counts.update(kinds)
        for kind in set(kinds) - examples.keys():
            line = batch.slice(kinds.index(kind), 1).to_pylist()[0]
            examples[kind] = f"{line['file']}, row {line['row']}: {line['detail']}"
    for source, num_used in num_used_rows.items():
        faults = {
            kind: count for kind, count in counts.most_common() if kind[0] == source and kind[1] not in _ASKED_FOR
        }
        num_faulty = sum(faults.values())
        num_rows = num_used + num_faulty
        if num_faulty > max_rejected_fraction * num_rows:
            table = "".join(f"\n  {count:>9,}  {kind[1]:<16}  e.g. {examples[kind]}" for kind, count in faults.items())
            raise DataError(
                f"source {source!r}: {num_faulty:,} of {num_rows:,} rows ({num_faulty / num_rows:.1%}) cannot be used; "
                f"at most {max_rejected_fraction:.1%} may be rejected (max_rejected_fraction). "
                f"Mend the data, or allow more:{table}"
            )


def row_numbers(corpus: Corpus, unit: Unit) -> NDArray[np.int64]:
    """The number in its file of each of the unit's rows, int64[unit.num_rows].

    Numbers have gaps only where a file of JSON lines has blank ones; only then is the unit read again.
    """
    file = corpus.files[unit.file]
    following = corpus.units[unit.index + 1] if unit.index + 1 < len(corpus.units) else None
    has_no_gap = file.file_format != "jsonl" or (
        following is not None and following.file == unit.file and following.first_row == unit.first_row + unit.num_rows
    )
    if has_no_gap:
        return np.arange(unit.first_row, unit.first_row + unit.num_rows, dtype=np.int64)
    return _numbers_by_reading(file, unit)


def _numbers_by_reading(file: CorpusFile, unit: Unit) -> NDArray[np.int64]:
    stream = RowStream(file.file_format, at_head=unit.first_row == 0, first_row=unit.first_row)
    try:
        with open(file.local_path, "rb") as handle:
            numbers = np.fromiter(
                (number for number, _, _ in read_rows(handle, stream, unit.start, unit.stop)), np.int64
            )
    except OSError as error:
        raise read_error(file.path, error) from error
    if len(numbers) != unit.num_rows:
        raise DataError(
            f"{file.path} has changed since it was scanned (other rows than then); run again from the start"
        )
    return numbers


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: missing or damaged ({error}); run again") from error


def _encoded(indices: Sequence[int], dictionary: pa.StringArray) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), dictionary)


def _constant(index: int, count: int, dictionary: pa.StringArray) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.full(count, index, np.int32)), dictionary)
