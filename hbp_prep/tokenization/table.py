"""The sample table: a few bytes for every sample, all that planning sees and all that sharding needs to find tokens.

Here the length limits act, after the loss masks were made, so that cutting takes ids and mask together. Cost: 2 ns a
token, the masks are counted once; memory 38 bytes a sample, and one unit's masks at 9 bytes a token.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbp_prep.corpus.selection import RowSelection
from hbp_prep.corpus.types import Corpus, LeftOut, SourceSpec, Unit
from hbp_prep.errors import DataError
from hbp_prep.files import atomic_write
from hbp_prep.manifest.parts import SPLIT
from hbp_prep.progress import NoProgress, Progress, track
from hbp_prep.reasons import Reason
from hbp_prep.tokenization import rejected
from hbp_prep.tokenization.lengths import LengthPolicy, num_covered, split_row
from hbp_prep.tokenization.rejected import RejectedRow, row_numbers, write_rejected
from hbp_prep.tokenization.store import StoredUnit, TokenStore

_VERSION = b"2"
_VERSION_KEY = b"hbp.table_version"
_LOST_KEY = b"hbp.lost_tokens"

Int16 = NDArray[np.int16]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

_COLUMNS: Mapping[str, type[np.integer]] = {
    "unit": np.int32,
    "index": np.int32,
    "first_token": np.int32,
    "source": np.int16,
    "file": np.int32,
    "row": np.int64,
    "num_tokens": np.int32,
    "num_loss_tokens": np.int32,
    "truncated_from": np.int32,
}


@dataclass(frozen=True, kw_only=True)
class SampleTable:
    """N samples; sample_id is the position: by unit, row, copy (a source's weight may use a row again), part.

    Attributes:
        unit: int32[N], the unit whose store file has the tokens.
        index: int32[N], the row's position in that store file.
        first_token: int32[N], where the sample begins among the row's stored tokens; 0 but for parts of a split row.
        source: int16[N], index into ``Corpus.sources``.
        file: int32[N], index into ``Corpus.files``.
        row: int64[N], the row's number in the input file.
        num_tokens: int32[N]; the sample is so many of the stored tokens, from ``first_token`` on.
        num_loss_tokens: int32[N], targets among these; the first token of a sample never is one.
        truncated_from: int32[N], tokens of the whole row; 0 where the sample is all of them.
        lost_tokens: Tokens of faultless rows that are in no sample, every use of a row counted: of rows without any,
            by the reason of their rejection; of others, as ``truncated`` or ``split`` (there, if only with 0, where
            that is the policy).
    """

    unit: Int32
    index: Int32
    first_token: Int32
    source: Int16
    file: Int32
    row: Int64
    num_tokens: Int32
    num_loss_tokens: Int32
    truncated_from: Int32
    lost_tokens: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.unit)

    @property
    def is_new_row(self) -> NDArray[np.bool_]:
        """bool[N]: false where the sample comes from the same input row as the one before it (a copy or a part)."""
        is_new = np.ones(len(self), np.bool_)
        is_new[1:] = (np.diff(self.unit) != 0) | (np.diff(self.index) != 0)
        return is_new

    @property
    def num_rows(self) -> int:
        """Distinct input rows that the samples come from."""
        return int(np.count_nonzero(self.is_new_row))

    @property
    def is_part(self) -> NDArray[np.bool_]:
        """bool[N]: the sample is a part of a row that was split."""
        return (self.truncated_from > 0) & (SPLIT in self.lost_tokens)

    def save(self, path: Path) -> None:
        """Write the table as one Arrow file, atomically."""
        columns = {name: pa.array(getattr(self, name)) for name in _COLUMNS}
        lost = json.dumps(dict(self.lost_tokens), sort_keys=True).encode()
        table = pa.table(columns).replace_schema_metadata({_VERSION_KEY: _VERSION, _LOST_KEY: lost})
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
        metadata = table.schema.metadata or {}
        if metadata.get(_VERSION_KEY) != _VERSION or table.column_names != list(_COLUMNS):
            raise DataError(f"{path}: written by another version of hbp-prep; run again")
        columns = {name: table.column(name).to_numpy() for name in _COLUMNS}
        return cls(**columns, lost_tokens=json.loads(metadata[_LOST_KEY]))


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
    lost: Counter[str] = Counter({} if policy.cut_key is None else {policy.cut_key: 0})
    units: list[dict[str, Int64]] = []
    with (
        write_rejected(rejected_path, corpus) as writer,
        track(progress, "Listing samples", sum(unit.num_rows for unit in corpus.units), "rows"),
    ):
        for unit in corpus.units:
            source = corpus.files[unit.file].source
            repeats = selection.repeats(unit)
            stored = store.unit(unit.index)
            samples, rows = _samples_of_unit(corpus, unit, stored, repeats, policy, lost)
            units.append(samples)
            rows += _not_selected(corpus, unit, repeats, selection.why_not(unit))
            if rows:
                writer.append(file=unit.file, source=source, rows=rows)
            stored.release()
            progress.advance(unit.num_rows)
    columns = {
        name: np.concatenate([np.zeros(0, dtype), *(samples[name].astype(dtype) for samples in units)])
        for name, dtype in _COLUMNS.items()
    }
    return SampleTable(**columns, lost_tokens=dict(lost))


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


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Ranges of stored rows that may become samples, by row: one of each row, or several of a long one.

    Attributes:
        row: Position of the row in the unit's file.
        first, stop: Its tokens [first, stop).
        num_loss_tokens: Targets among them, the first token left out.
    """

    row: Int64
    first: Int64
    stop: Int64
    num_loss_tokens: Int64

    def num_covered_of(self, row: int, among: NDArray[np.bool_]) -> int:
        """Tokens of the row in the parts that are ``among``."""
        begin, end = np.searchsorted(self.row, [row, row + 1])
        chosen = np.flatnonzero(among[begin:end]) + begin
        return num_covered(zip(self.first[chosen].tolist(), self.stop[chosen].tolist(), strict=True))


def _samples_of_unit(
    corpus: Corpus,
    unit: Unit,
    stored: StoredUnit,
    repeats: NDArray[np.uint16],
    policy: LengthPolicy,
    lost: Counter[str],
) -> tuple[dict[str, Int64], list[RejectedRow]]:
    """The table's columns for one unit's samples, and its rows that have none; ``lost`` is counted up."""
    batch = stored.batch
    index_in_unit = batch.column("index_in_unit").to_numpy()
    if not np.array_equal(index_in_unit, np.flatnonzero(repeats)):
        raise DataError(f"unit {unit.index} of the token store is not of this corpus or seed; run again")
    row = batch.column("row").to_numpy()
    lengths = np.diff(stored.token_offsets)
    reasons: list[str | None] = batch.column("reason").to_pylist()
    details: list[str | None] = batch.column("detail").to_pylist()
    is_fresh = np.array([reason is None for reason in reasons], np.bool_)
    too_long = is_fresh & (lengths > policy.max_tokens)
    if policy.over_length == "raise" and too_long.any():
        first = int(np.argmax(too_long))
        raise DataError(
            f"{corpus.files[unit.file].path}, row {row[first]}: {lengths[first]:,} tokens, the longest packing length "
            f"is {policy.max_tokens:,}; lengthen it, or set over_length to drop, truncate or split"
        )
    parts = _parts(stored, lengths, too_long, policy)
    is_kept = _kept_parts(parts, is_fresh, policy)
    has_sample = np.bincount(parts.row[is_kept], minlength=len(lengths)) > 0
    for at in np.flatnonzero(is_fresh & ~has_sample):
        reasons[at], details[at] = _why_not(int(lengths[at]), policy)
    uses = repeats[index_in_unit].astype(np.int64)
    num_lost = np.where(is_fresh, (lengths - _num_covered(parts, is_kept, lengths, policy)) * uses, 0)
    for at in np.flatnonzero(num_lost):
        lost[str(policy.cut_key if has_sample[at] else reasons[at])] += int(num_lost[at])
    chosen = _with_copies(parts.row, np.flatnonzero(is_kept), uses)
    rows = [RejectedRow(int(row[at]), reasons[at] or "", details[at]) for at in np.flatnonzero(~has_sample)]
    index = parts.row[chosen]
    num_tokens = parts.stop[chosen] - parts.first[chosen]
    samples = {
        "unit": np.full(len(chosen), unit.index),
        "index": index,
        "first_token": parts.first[chosen],
        "source": np.full(len(chosen), corpus.files[unit.file].source),
        "file": np.full(len(chosen), unit.file),
        "row": row[index],
        "num_tokens": num_tokens,
        "num_loss_tokens": parts.num_loss_tokens[chosen],
        "truncated_from": np.where(lengths[index] > num_tokens, lengths[index], 0),
    }
    return samples, rows


def _parts(stored: StoredUnit, lengths: Int64, too_long: NDArray[np.bool_], policy: LengthPolicy) -> _Parts:
    """Every row as it is, cut short, or in parts."""
    starts = stored.token_offsets[:-1]
    row = np.arange(len(lengths))
    first, stop = np.zeros_like(lengths), lengths.copy()
    if policy.over_length == "truncate":
        stop = np.minimum(lengths, policy.max_tokens)
    elif policy.over_length == "split" and too_long.any():
        ranges = [
            (int(at), *part)
            for at in np.flatnonzero(too_long)
            for part in split_row(stored.mask(int(starts[at]), int(stored.token_offsets[at + 1])), policy.max_tokens)
        ]
        whole = np.stack([row, first, stop], axis=1)[~too_long]
        table = np.concatenate([whole, np.array(ranges, np.int64)])
        row, first, stop = table[np.lexsort((table[:, 1], table[:, 0]))].T
    mask = stored.mask(0, int(stored.token_offsets[-1]))
    before = np.concatenate([[0], np.cumsum(mask, dtype=np.int64)])
    begin = starts[row] + first
    num_loss_tokens = before[starts[row] + stop] - before[np.minimum(begin + 1, starts[row] + stop)]
    return _Parts(row=row, first=first, stop=stop, num_loss_tokens=num_loss_tokens)


def _kept_parts(parts: _Parts, is_fresh: NDArray[np.bool_], policy: LengthPolicy) -> NDArray[np.bool_]:
    """bool[parts]: it is a sample, since it fits, is long enough and has a target."""
    num_tokens = parts.stop - parts.first
    fits = (num_tokens <= policy.max_tokens) & (num_tokens >= policy.min_tokens)
    return is_fresh[parts.row] & fits & (parts.num_loss_tokens > 0)


def _why_not(num_tokens: int, policy: LengthPolicy) -> tuple[Reason, str]:
    """Why a faultless row of so many tokens has no sample."""
    if num_tokens < policy.min_tokens:
        return Reason.TOO_SHORT, f"{num_tokens} tokens, at least {policy.min_tokens}"
    if policy.over_length == "truncate":
        kept = min(num_tokens, policy.max_tokens)
        return Reason.NO_LOSS_TOKENS, f"truncated from {num_tokens} to {kept} tokens, none of them a target"
    if policy.over_length == "split":
        detail = f"of {num_tokens} tokens, split at {policy.max_tokens}, no part with a target is long enough"
        return Reason.NO_LOSS_TOKENS, detail
    return Reason.TOO_LONG, f"{num_tokens} tokens, limit {policy.max_tokens}"


def _num_covered(parts: _Parts, is_kept: NDArray[np.bool_], lengths: Int64, policy: LengthPolicy) -> Int64:
    """Tokens of every row that are in a sample, int64[rows]."""
    covered = np.zeros(len(lengths), np.int64)
    covered[parts.row[is_kept]] = (parts.stop - parts.first)[is_kept]
    if policy.over_length == "split":
        for at in np.flatnonzero(lengths > policy.max_tokens):
            covered[at] = parts.num_covered_of(int(at), is_kept)
    return covered


def _with_copies(row: Int64, kept: Int64, uses: Int64) -> Int64:
    """Kept parts by row, copy, part: each row's parts, in order, as often as the row is used."""
    times = uses[row[kept]]
    chosen = np.repeat(kept, times)
    copy = np.arange(len(chosen)) - np.repeat(np.cumsum(times) - times, times)
    return chosen[np.lexsort((chosen, copy, row[chosen]))]


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
        LeftOut.UNJUDGED: (Reason.BAD_ROW, f"where {source.where}: cannot be evaluated on this row's values"),
    }
    numbers = row_numbers(corpus, unit)
    return [RejectedRow(int(numbers[at]), *reasons[int(why_not[at])]) for at in np.flatnonzero(repeats == 0)]


def _selection_of(source: SourceSpec) -> str:
    """Why rows of a source are left out: ``weight 0.5``, ``limit 2000`` or both."""
    settings = [f"weight {source.weight:g}"] if source.weight < 1 else []
    settings += [f"limit {source.limit}"] if source.limit is not None else []
    return ", ".join(settings)
