"""samples.arrow against the shards, and the vocabulary of rejected.arrow; both are streamed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbp_prep.manifest.checks.findings import Findings
from hbp_prep.manifest.checks.input_rows import InputRows, decoded
from hbp_prep.manifest.checks.parts import Parts
from hbp_prep.manifest.checks.placement import PackTable, Placement
from hbp_prep.manifest.parts import SPLIT, TRUNCATED
from hbp_prep.manifest.schema import Manifest, SourceTotals
from hbp_prep.manifest.tables import REJECTED_SCHEMA, SAMPLES_SCHEMA, iterate_batches, open_arrow
from hbp_prep.reasons import Reason

Array = NDArray[Any]


def num_samples(folder: Path, manifest: Manifest) -> int:
    """Rows that samples.arrow really has.

    Raises:
        ManifestError: the file cannot be read.
    """
    reader = open_arrow(folder / manifest.samples.path, SAMPLES_SCHEMA, fingerprint=manifest.fingerprint)
    return sum(batch.num_rows for batch in iterate_batches(folder / manifest.samples.path, reader, SAMPLES_SCHEMA))


def check_samples(
    folder: Path,
    manifest: Manifest,
    placement: Placement,
    packs: PackTable,
    input_rows: InputRows,
    findings: Findings,
    *,
    quick: bool,
) -> dict[str, SourceTotals]:
    """Sample ids count up from 0, and every row agrees with the sample's segment in the shards.

    Returns:
        Sums by source, as the file states them.

    Raises:
        ManifestError: the file cannot be read.
    """
    path = folder / manifest.samples.path
    group_names = [group.name for group in manifest.groups]
    group_of_pack = np.append(packs.group, -1)
    by_source: dict[str, SourceTotals] = {}
    start = num_cut = 0
    was_split = SPLIT in manifest.totals.lost_tokens
    parts = Parts(path.name, findings)
    reader = open_arrow(path, SAMPLES_SCHEMA, fingerprint=manifest.fingerprint)
    for batch in iterate_batches(path, reader, SAMPLES_SCHEMA):
        here = slice(start, start + batch.num_rows)
        rows = _Rows("samples", path.name, batch, start, findings)
        pack_of = placement.pack_of[here]
        placed = pack_of >= 0
        rows.equal("sample_id", np.arange(start, start + batch.num_rows))
        rows.equal("pack_id", pack_of, among=placed)
        rows.equal("num_tokens", placement.num_tokens[here], among=placed)
        if not quick:
            rows.equal("num_loss_tokens", placement.num_loss_tokens[here], among=placed)
        rows.check_group(group_names, group_of_pack[pack_of])
        rows.check_own_values()
        if was_split:
            parts.add(batch, start)
        else:
            num_cut += _num_cut_tokens(batch)
        input_rows.add_samples(batch)
        _add_sources(by_source, batch)
        start += batch.num_rows
    if start != manifest.samples.rows:
        findings.add("files", f"{path} has {start} rows, the manifest says {manifest.samples.rows}")
    _check_lost(manifest, parts.num_lost_tokens() if was_split else num_cut, findings)
    return by_source


def _num_cut_tokens(batch: pa.RecordBatch) -> int:
    """Tokens that truncation took from the batch's samples."""
    truncated_from = batch.column("truncated_from")
    num_tokens = batch.column("num_tokens").to_numpy().astype(np.int64)
    is_cut = truncated_from.is_valid().to_numpy(zero_copy_only=False)
    return int((truncated_from.fill_null(0).to_numpy().astype(np.int64) - num_tokens)[is_cut].sum())


def _check_lost(manifest: Manifest, found: int | None, findings: Findings) -> None:
    """The manifest counts as many cut tokens as the samples lack."""
    key = SPLIT if SPLIT in manifest.totals.lost_tokens else TRUNCATED
    stated = manifest.totals.lost_tokens.get(key, 0)
    if found is not None and found != stated:
        findings.add("totals", f"totals: lost_tokens: {key}: the manifest says {stated}, the samples lack {found}")


def check_rejected(folder: Path, manifest: Manifest, input_rows: InputRows, findings: Findings) -> dict[str, int]:
    """Every reason is of the fixed vocabulary.

    Returns:
        Rows by reason.

    Raises:
        ManifestError: the file cannot be read.
    """
    path = folder / manifest.rejected.path
    by_reason: dict[str, int] = {}
    num_rows = 0
    reader = open_arrow(path, REJECTED_SCHEMA, fingerprint=manifest.fingerprint)
    for batch in iterate_batches(path, reader, REJECTED_SCHEMA):
        rows = _Rows("rows", path.name, batch, num_rows, findings)
        rows.none(batch.column("row").to_numpy() < 0, lambda _: "row is negative")
        reasons, reason = decoded(batch.column("reason"))
        for name, count in zip(reasons, np.bincount(reason, minlength=len(reasons)).tolist(), strict=True):
            if count:
                by_reason[name] = by_reason.get(name, 0) + count
        input_rows.add_rejected(batch)
        num_rows += batch.num_rows
    for name in sorted(set(by_reason) - set(Reason)):
        findings.add("rows", f"{path.name}: {name!r} is not a known reason")
    if num_rows != manifest.rejected.rows:
        findings.add("files", f"{path} has {num_rows} rows, the manifest says {manifest.rejected.rows}")
    return by_reason


class _Rows:
    """A batch of rows from number ``start`` on; names the first row that is wrong."""

    def __init__(self, check: str, name: str, batch: pa.RecordBatch, start: int, findings: Findings) -> None:
        self._check = check
        self._name = name
        self._batch = batch
        self._start = start
        self._findings = findings

    def equal(self, column: str, expected: Array, *, among: Array | None = None) -> None:
        """A problem where the column differs from what the shards say."""
        found = self._batch.column(column).to_numpy()
        wrong = found != expected if among is None else (found != expected) & among
        self.none(wrong, lambda row: f"{column} is {found[row]}, the shards say {expected[row]}")

    def none(self, wrong: Array, sentence: Callable[[int], str]) -> None:
        """One problem for the first row that is ``wrong``, and how many there are."""
        rows = np.flatnonzero(wrong)
        if len(rows):
            row = int(rows[0])
            more = f" ({len(rows) - 1} more rows likewise)" if len(rows) > 1 else ""
            self._findings.add(self._check, f"{self._name}: row {self._start + row}: {sentence(row)}{more}")

    def check_group(self, group_names: list[str], expected: Array) -> None:
        """The group column names the packing group of the sample's pack (``expected``: its index, -1 without one)."""
        names, group = decoded(self._batch.column("group"))
        known = {name: index for index, name in enumerate(group_names)}
        found = np.array([known.get(name, -2) for name in names], np.int64)[group]
        self.none(
            (found != expected) & (expected >= 0),
            lambda row: f"group is {names[group[row]]!r}, its pack's is {group_names[expected[row]]!r}",
        )

    def check_own_values(self) -> None:
        """What a row must satisfy by itself."""
        num_tokens = self._batch.column("num_tokens").to_numpy()
        truncated_from = self._batch.column("truncated_from").fill_null(np.iinfo(np.int32).max).to_numpy()
        self.none(truncated_from <= num_tokens, lambda _: "truncated_from is not above num_tokens")
        self.none(self._batch.column("row").to_numpy() < 0, lambda _: "row is negative")


def _add_sources(by_source: dict[str, SourceTotals], batch: pa.RecordBatch) -> None:
    names, source = decoded(batch.column("source"))
    sums = {"num_samples": np.bincount(source, minlength=len(names))}
    for column in ("num_tokens", "num_loss_tokens"):
        sums[column] = np.bincount(source, weights=batch.column(column).to_numpy(), minlength=len(names))
    for index, name in enumerate(names):
        if sums["num_samples"][index]:
            before = by_source.get(name, SourceTotals(num_samples=0, num_tokens=0, num_loss_tokens=0))
            by_source[name] = SourceTotals(
                **{column: getattr(before, column) + int(values[index]) for column, values in sums.items()}
            )
