"""The sample table: a few bytes for every sample, all that planning sees and all that sharding needs to find tokens.

Here the length limits act, after the loss masks were made, so that cutting takes ids and mask together. Cost: 2 ns a
token, the masks are counted once; memory 34 bytes a sample, and one unit's masks at 9 bytes a token.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbp_prep.corpus.selection import RowSelection
from hbp_prep.corpus.types import Corpus, LeftOut, SourceSpec, Unit
from hbp_prep.errors import ConfigError, DataError
from hbp_prep.files import atomic_write
from hbp_prep.progress import NoProgress, Progress, track
from hbp_prep.reasons import Reason
from hbp_prep.suggest import did_you_mean
from hbp_prep.tokenization import rejected
from hbp_prep.tokenization.rejected import RejectedRow, row_numbers, write_rejected
from hbp_prep.tokenization.store import StoredUnit, TokenStore

OVER_LENGTH = ("drop", "truncate", "raise")
_VERSION = b"1"
_VERSION_KEY = b"hbp.table_version"

Int16 = NDArray[np.int16]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

_COLUMNS: Mapping[str, type[np.integer]] = {
    "unit": np.int32,
    "index": np.int32,
    "source": np.int16,
    "file": np.int32,
    "row": np.int64,
    "num_tokens": np.int32,
    "num_loss_tokens": np.int32,
    "truncated_from": np.int32,
}


@dataclass(frozen=True, kw_only=True)
class SampleTable:
    """N samples; sample_id is the position: by unit, row, copy (a row used r times is r samples in a row).

    Attributes:
        unit: int32[N], the unit whose store file has the tokens.
        index: int32[N], the row's position in that store file.
        source: int16[N], index into ``Corpus.sources``.
        file: int32[N], index into ``Corpus.files``.
        row: int64[N], the row's number in the input file.
        num_tokens: int32[N]; of the stored tokens the first ``num_tokens`` are the sample.
        num_loss_tokens: int32[N], targets among these.
        truncated_from: int32[N], tokens before truncation; 0 if it was not truncated.
    """

    unit: Int32
    index: Int32
    source: Int16
    file: Int32
    row: Int64
    num_tokens: Int32
    num_loss_tokens: Int32
    truncated_from: Int32

    def __len__(self) -> int:
        return len(self.unit)

    @property
    def is_new_row(self) -> NDArray[np.bool_]:
        """bool[N]: false where the sample comes from the same input row as the one before it (a copy)."""
        is_new = np.ones(len(self), np.bool_)
        is_new[1:] = (np.diff(self.unit) != 0) | (np.diff(self.index) != 0)
        return is_new

    @property
    def num_rows(self) -> int:
        """Distinct input rows that the samples come from."""
        return int(np.count_nonzero(self.is_new_row))

    def save(self, path: Path) -> None:
        """Write the table as one Arrow file, atomically."""
        columns = {name: pa.array(getattr(self, name)) for name in _COLUMNS}
        table = pa.table(columns).replace_schema_metadata({_VERSION_KEY: _VERSION})
        with atomic_write(path) as handle, pa.ipc.new_file(handle, table.schema) as writer:
            writer.write_table(table)

    @classmethod
    def load(cls, path: Path) -> "SampleTable":
        """Read what :meth:`save` wrote; the arrays are views of the mapped file.

        Raises:
            DataError: the file is missing, damaged, or of another version.
        """
        try:
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all().combine_chunks()
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}: missing or damaged ({error}); run again") from error
        if (table.schema.metadata or {}).get(_VERSION_KEY) != _VERSION or table.column_names != list(_COLUMNS):
            raise DataError(f"{path}: written by another version of hbp-prep; run again")
        return cls(**{name: table.column(name).to_numpy() for name in _COLUMNS})


@dataclass(frozen=True, kw_only=True)
class LengthPolicy:
    """Which lengths are samples.

    Attributes:
        max_tokens: The longest sample.
        over_length: ``drop`` (rejected and listed), ``truncate`` or ``raise``.
        min_tokens: The shortest sample.
    """

    max_tokens: int
    over_length: str
    min_tokens: int = 1

    def __post_init__(self) -> None:
        if self.over_length not in OVER_LENGTH:
            raise ConfigError(
                f"over_length: {self.over_length!r} is not known{did_you_mean(self.over_length, OVER_LENGTH)}"
            )
        if not 1 <= self.min_tokens <= self.max_tokens:
            raise ConfigError(
                f"min_tokens is {self.min_tokens}; it must be from 1 to the limit of {self.max_tokens} tokens"
            )


def build_sample_table(
    corpus: Corpus,
    store_folder: Path,
    *,
    seed: int,
    max_tokens: int,
    over_length: str,
    min_tokens: int = 1,
    rejected_path: Path,
    progress: Progress | None = None,
) -> SampleTable:
    """Apply lengths and weights to the stored rows: the table of samples, and ``rejected_path`` for all other rows.

    Every row of the corpus is in exactly one of the two.

    Args:
        seed: The one that the store was made with.
        over_length, min_tokens: See :class:`LengthPolicy`.

    Raises:
        DataError: the store is incomplete or of another corpus; or a row is too long under ``raise``.
        ConfigError: the policy is unknown or its limits contradict each other.
    """
    policy = LengthPolicy(max_tokens=max_tokens, over_length=over_length, min_tokens=min_tokens)
    progress = progress or NoProgress()
    selection = RowSelection(corpus, seed)
    store = TokenStore(store_folder)
    parts = [_no_samples()]
    with (
        write_rejected(rejected_path, corpus) as writer,
        track(progress, "Listing samples", sum(unit.num_rows for unit in corpus.units), "rows"),
    ):
        for unit in corpus.units:
            source = corpus.files[unit.file].source
            repeats = selection.repeats(unit)
            stored = store.unit(unit.index)
            samples, rows = _samples_of_unit(corpus, unit, stored, repeats, policy)
            parts.append(samples)
            rows += _not_selected(corpus, unit, repeats, selection.why_not(unit))
            if rows:
                writer.append(file=unit.file, source=source, rows=rows)
            stored.release()
            progress.advance(unit.num_rows)
    return SampleTable(
        **{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(SampleTable)}
    )


def check_rejected_fraction(
    rejected_path: Path, table: SampleTable, corpus: Corpus, max_rejected_fraction: float
) -> None:
    """Stop if too large a share of any source's selected rows is faulty.

    Raises:
        DataError: with the count and one example (file, row, detail) of every reason.
    """
    used = np.bincount(table.source[table.is_new_row], minlength=len(corpus.sources))
    num_used_rows = {source.name: int(count) for source, count in zip(corpus.sources, used, strict=True)}
    rejected.check_rejected_fraction(rejected_path, num_used_rows, max_rejected_fraction)


def _samples_of_unit(
    corpus: Corpus, unit: Unit, stored: StoredUnit, repeats: NDArray[np.uint16], policy: LengthPolicy
) -> tuple[SampleTable, list[RejectedRow]]:
    batch = stored.batch
    index_in_unit = batch.column("index_in_unit").to_numpy()
    if not np.array_equal(index_in_unit, np.flatnonzero(repeats)):
        raise DataError(f"unit {unit.index} of the token store is not of this corpus or seed; run again")
    row = batch.column("row").to_numpy()
    lengths = np.diff(stored.token_offsets)
    num_tokens = np.minimum(lengths, policy.max_tokens) if policy.over_length == "truncate" else lengths
    num_loss_tokens = _num_loss_tokens(stored, num_tokens)
    reasons: list[str | None] = batch.column("reason").to_pylist()
    details: list[str | None] = batch.column("detail").to_pylist()
    is_fresh = np.array([reason is None for reason in reasons], np.bool_)
    too_long = is_fresh & (num_tokens > policy.max_tokens)
    if policy.over_length == "raise" and too_long.any():
        first = int(np.argmax(too_long))
        raise DataError(
            f"{corpus.files[unit.file].path}, row {row[first]}: {lengths[first]:,} tokens, the longest packing length "
            f"is {policy.max_tokens:,}; lengthen it, or set over_length to drop or truncate"
        )
    too_short = is_fresh & (num_tokens < policy.min_tokens)
    no_loss = is_fresh & ~too_short & (num_loss_tokens == 0)
    for at in np.flatnonzero(too_long):
        reasons[at], details[at] = Reason.TOO_LONG, f"{lengths[at]} tokens, limit {policy.max_tokens}"
    for at in np.flatnonzero(too_short):
        reasons[at], details[at] = Reason.TOO_SHORT, f"{lengths[at]} tokens, at least {policy.min_tokens}"
    for at in np.flatnonzero(no_loss):
        detail = f"truncated from {lengths[at]} to {num_tokens[at]} tokens, none of them a target"
        reasons[at], details[at] = Reason.NO_LOSS_TOKENS, detail
    is_kept = is_fresh & ~too_long & ~too_short & ~no_loss
    kept = np.repeat(np.flatnonzero(is_kept), repeats[index_in_unit[is_kept]])
    rows = [RejectedRow(int(row[at]), reasons[at] or "", details[at]) for at in np.flatnonzero(~is_kept)]
    truncated_from = np.where(lengths > num_tokens, lengths, 0)
    samples = {
        "unit": np.full(len(kept), unit.index),
        "index": kept,
        "source": np.full(len(kept), corpus.files[unit.file].source),
        "file": np.full(len(kept), unit.file),
        "row": row[kept],
        "num_tokens": num_tokens[kept],
        "num_loss_tokens": num_loss_tokens[kept],
        "truncated_from": truncated_from[kept],
    }
    return SampleTable(**{name: column.astype(_COLUMNS[name]) for name, column in samples.items()}), rows


def _num_loss_tokens(stored: StoredUnit, num_tokens: Int64) -> Int64:
    """Targets among the first ``num_tokens`` tokens of every row, int64[N]."""
    before = np.concatenate([[0], np.cumsum(stored.mask(0, int(stored.token_offsets[-1])), dtype=np.int64)])
    starts = stored.token_offsets[:-1]
    return before[starts + num_tokens] - before[starts]


def _not_selected(
    corpus: Corpus, unit: Unit, repeats: NDArray[np.uint16], why_not: NDArray[np.uint8]
) -> list[RejectedRow]:
    if repeats.all():
        return []
    source = corpus.sources[corpus.files[unit.file].source]
    reasons: dict[int, tuple[Reason, str | None]] = {
        LeftOut.NOT: (Reason.NOT_SELECTED, _selection_of(source)),
        LeftOut.FILTERED: (Reason.NOT_SELECTED, f"where {source.where}"),
        LeftOut.DUPLICATE: (Reason.DUPLICATE, None),
    }
    numbers = row_numbers(corpus, unit)
    return [RejectedRow(int(numbers[at]), *reasons[int(why_not[at])]) for at in np.flatnonzero(repeats == 0)]


def _selection_of(source: SourceSpec) -> str:
    """Why rows of a source are left out: ``weight 0.5``, ``limit 2000`` or both."""
    settings = [f"weight {source.weight:g}"] if source.weight < 1 else []
    settings += [f"limit {source.limit}"] if source.limit is not None else []
    return ", ".join(settings)


def _no_samples() -> SampleTable:
    return SampleTable(**{name: np.zeros(0, dtype) for name, dtype in _COLUMNS.items()})
