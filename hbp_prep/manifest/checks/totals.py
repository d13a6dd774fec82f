"""The manifest's sums against those of the files."""

from typing import Any

import numpy as np

from hbp_prep.manifest.checks.findings import Findings
from hbp_prep.manifest.checks.placement import PackTable
from hbp_prep.manifest.schema import Manifest, SourceTotals


def check_group_totals(manifest: Manifest, packs: PackTable, findings: Findings) -> None:
    """Packs, tokens and loss tokens of every packing group, and of all."""
    for index, group in enumerate(manifest.groups):
        mine = packs.group == index
        where = f"packing group {group.name}"
        _equal(findings, f"{where}: num_packs", group.num_packs, int(np.count_nonzero(mine)))
        _equal(findings, f"{where}: num_tokens", group.num_tokens, int(packs.num_tokens[mine].sum()))
        _equal(findings, f"{where}: num_loss_tokens", group.num_loss_tokens, int(packs.num_loss_tokens[mine].sum()))
    totals = manifest.totals
    _equal(findings, "totals: num_tokens", totals.num_tokens, int(packs.num_tokens.sum()))
    _equal(findings, "totals: num_loss_tokens", totals.num_loss_tokens, int(packs.num_loss_tokens.sum()))


def check_row_totals(
    manifest: Manifest, by_source: dict[str, SourceTotals], by_reason: dict[str, int], findings: Findings
) -> None:
    """Samples by source, and rejected rows by reason. Sources without samples may be listed with zeros."""
    totals = manifest.totals
    nothing = SourceTotals(num_samples=0, num_tokens=0, num_loss_tokens=0)
    for name in sorted(totals.by_source.keys() | by_source.keys()):
        stated, found = totals.by_source.get(name, nothing), by_source.get(name, nothing)
        _equal(findings, f"totals: by_source: {name}", stated, found)
    _equal(findings, "totals: num_samples", totals.num_samples, sum(item.num_samples for item in by_source.values()))
    for reason in sorted(totals.rejected_by_reason.keys() | by_reason.keys()):
        stated_rows, found_rows = totals.rejected_by_reason.get(reason, 0), by_reason.get(reason, 0)
        _equal(findings, f"totals: rejected_by_reason: {reason}", stated_rows, found_rows)
    _equal(findings, "totals: num_rejected", totals.num_rejected, sum(by_reason.values()))


def _equal(findings: Findings, what: str, stated: Any, found: Any) -> None:
    if stated != found:
        findings.add("totals", f"{what}: the manifest says {stated}, the files have {found}")
