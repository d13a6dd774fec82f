"""Everything the report shows, as numbers: read from a finished folder, beside the naive baseline.

``report`` is the content of metrics.json, from which every table is made; the arrays beside it are what the charts
draw. The folder is read through its small tables, never its tokens: about 3 seconds for a million samples, most of them
for the naive plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from numpy.typing import NDArray

from hbp_prep.cost.model import CostModel
from hbp_prep.errors import ManifestError, PlanError
from hbp_prep.manifest.document import load_manifest
from hbp_prep.manifest.paths import inside
from hbp_prep.manifest.schedule import Schedule as StoredSchedule
from hbp_prep.manifest.schedule import load_schedule
from hbp_prep.manifest.schema import FileEntry, Manifest
from hbp_prep.manifest.tables import REJECTED_SCHEMA, SAMPLES_SCHEMA, iterate_batches, open_arrow
from hbp_prep.planning.planner import naive_baseline, naive_baseline_with_empty_packs
from hbp_prep.planning.types import Curriculum, PackingGroup, Plan, PlanSpec, Samples
from hbp_prep.report.charted import CostBand, FillHistogram, LengthHistogram, cost_bands, fill_histogram

REPORT_FORMAT = "hbp-report"
REPORT_VERSION = 1
RESOLVED_NAME = "resolved.yaml"


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Numbers only.

    Attributes:
        report: Plain JSON data: ``ours`` and ``naive`` (the same keys, see docs/metrics.md), ``sources``,
            ``rejected``, ``totals`` and where it all comes from.
        resolved: Text of resolved.yaml, or empty.
        pack_lengths: Of the packing groups: (name, tokens).
        ours, naive: Attention cost per DP rank along the schedule, one band per packing group.
    """

    report: dict[str, Any]
    resolved: str
    pack_lengths: tuple[tuple[str, int], ...]
    lengths: LengthHistogram
    fills: tuple[FillHistogram, ...]
    ours: tuple[CostBand, ...]
    naive: tuple[CostBand, ...]


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Columns of samples.arrow. ``source`` and ``file`` are indices; sources by the names beside."""

    source_names: tuple[str, ...]
    source: NDArray[np.int64]
    file: NDArray[np.int64]
    row: NDArray[np.int64]
    num_tokens: NDArray[np.int64]
    num_loss_tokens: NDArray[np.int64]
    pack_id: NDArray[np.int64]


def collect(folder: Path) -> ReportData:
    """Read a finished folder and plan its samples naively.

    Raises:
        ManifestError: the folder is unfinished or damaged.
    """
    manifest = load_manifest(folder)
    schedule = load_schedule(folder, manifest)
    resolved = _resolved_text(folder)
    recipe = _recipe(folder, resolved)
    rejected = _read(folder, manifest, manifest.rejected, REJECTED_SCHEMA)
    table = _sample_table(folder, manifest, recipe, rejected)
    naive = _naive_plan(manifest, table)
    fills = _pack_fills(manifest, table)
    report = _provenance(manifest) | {
        "name": str(recipe.get("name", folder.resolve().name)),
        "ours": manifest.metrics,
        "naive": naive.metrics,
        "sources": _sources(table, rejected, recipe),
        "rejected": _rejected_by_reason(rejected),
    }
    longest = manifest.groups[-1]
    naive_fill = naive.packs.num_tokens / longest.pack_length
    group_names = tuple(group.name for group in manifest.groups)
    return ReportData(
        report=report,
        resolved=resolved,
        pack_lengths=tuple((group.name, group.pack_length) for group in manifest.groups),
        lengths=LengthHistogram.of(table.num_tokens, table.source, table.source_names),
        fills=(
            *(fill_histogram(f"ours, {name}", fill) for name, fill in fills.items() if len(fill)),
            fill_histogram(f"naive, {longest.name}", naive_fill),
        ),
        ours=_bands_of_ours(manifest, schedule, table, group_names),
        naive=cost_bands(
            naive.packs.attention_cost[naive.schedule.assignment_packs],
            naive.schedule.assignment_offsets,
            np.zeros(len(naive.schedule), np.int64),
            (longest.name,),
        ),
    )


def _provenance(manifest: Manifest) -> dict[str, Any]:
    """What the manifest says of the run as a whole."""
    return {
        "format": REPORT_FORMAT,
        "format_version": REPORT_VERSION,
        "fingerprint": manifest.fingerprint,
        "tokenizer": manifest.tokenizer,
        "created_by": manifest.created_by,
        "seed": manifest.seed,
        "world_size": manifest.world_size,
        "gpus_per_node": manifest.gpus_per_node,
        "num_steps": manifest.schedule.num_steps,
        "num_micro_steps": manifest.schedule.num_micro_steps,
        "epochs": manifest.schedule.epochs,
        "model": manifest.cost_model["model"]["name"],
        "hardware": manifest.cost_model["hardware"]["name"],
        "cost_provenance": manifest.cost_model["provenance"],
        "cost_source": manifest.cost_model["source"],
        "totals": {
            "rows_read": manifest.totals.rows_read,
            "num_samples": manifest.totals.num_samples,
            "num_tokens": manifest.totals.num_tokens,
            "num_loss_tokens": manifest.totals.num_loss_tokens,
            "num_rejected": manifest.totals.num_rejected,
            "lost_tokens": manifest.totals.lost_tokens,
        },
    }


def _resolved_text(folder: Path) -> str:
    path = folder / RESOLVED_NAME
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _recipe(folder: Path, resolved: str) -> Mapping[str, Any]:
    """The recipe as plain data; empty where there is none."""
    try:
        recipe = yaml.safe_load(resolved) or {}
    except yaml.YAMLError as error:
        raise ManifestError(f"{folder / RESOLVED_NAME} is not valid YAML; run hbp-prep again") from error
    if not isinstance(recipe, Mapping):
        raise ManifestError(f"{folder / RESOLVED_NAME} holds no recipe; run hbp-prep again")
    return recipe


def _read(folder: Path, manifest: Manifest, entry: FileEntry, expected: pa.Schema) -> pa.Table:
    path = inside(folder, entry.path)
    reader = open_arrow(path, expected, fingerprint=manifest.fingerprint)
    table = pa.Table.from_batches(list(iterate_batches(path, reader, expected)), schema=reader.schema)
    return table.unify_dictionaries().combine_chunks()


def _names_and_indices(table: pa.Table, column: str) -> tuple[list[str], NDArray[np.int64]]:
    """A dictionary column as its names and int64[rows] indices into them."""
    array = table.column(column)
    if array.num_chunks == 0:
        return [], np.zeros(0, np.int64)
    chunk = array.chunk(0)
    return chunk.dictionary.to_pylist(), chunk.indices.to_numpy().astype(np.int64)


def _sample_table(folder: Path, manifest: Manifest, recipe: Mapping[str, Any], rejected: pa.Table) -> _Table:
    arrow = _read(folder, manifest, manifest.samples, SAMPLES_SCHEMA)
    pack_id = arrow.column("pack_id").to_numpy()
    num_packs = sum(group.num_packs for group in manifest.groups)
    if not 0 < arrow.num_rows == manifest.totals.num_samples or not 0 <= pack_id.min() <= pack_id.max() < num_packs:
        raise ManifestError(f"{folder}: samples.arrow does not agree with the manifest; hbp-prep verify says where")
    found, source = _names_and_indices(arrow, "source")
    known = [str(item["name"]) for item in recipe.get("sources", [])]
    others = sorted({*found, *_names_and_indices(rejected, "source")[0]} - set(known))
    names = (*known, *others)
    return _Table(
        source_names=names,
        source=np.array([names.index(name) for name in found], np.int64)[source],
        file=_names_and_indices(arrow, "file")[1],
        **{
            name: arrow.column(name).to_numpy().astype(np.int64)
            for name in ("row", "num_tokens", "num_loss_tokens", "pack_id")
        },
    )


def _naive_plan(manifest: Manifest, table: _Table) -> Plan:
    """The same samples packed to the longest packing length by ISF, micro-steps at random."""
    spec = PlanSpec(
        groups=tuple(
            PackingGroup(
                name=group.name,
                pack_length=group.pack_length,
                sp_degree=group.sp_degree,
                gc_layers=group.gc_layers,
            )
            for group in manifest.groups
        ),
        world_size=manifest.world_size,
        strategy="isf",
        order="random",
        micro_steps_per_step=manifest.schedule.micro_steps_per_step,
        curriculum=Curriculum(),
        epochs=manifest.schedule.epochs,
        seed=manifest.seed,
    )
    samples = Samples(
        num_tokens=table.num_tokens.astype(np.int32),
        num_loss_tokens=table.num_loss_tokens.astype(np.int32),
        source=table.source.astype(np.int16),
        source_names=table.source_names,
    )
    cost = CostModel.from_dict(manifest.cost_model)
    try:
        return naive_baseline(spec, samples, cost)
    except PlanError:  # a replan for a cluster that the samples do not fill
        return naive_baseline_with_empty_packs(spec, samples, cost)


def _pack_fills(manifest: Manifest, table: _Table) -> dict[str, NDArray[np.float64]]:
    """Packing group -> float64[packs], tokens / packing length."""
    num_packs = [group.num_packs for group in manifest.groups]
    tokens = np.bincount(table.pack_id, weights=table.num_tokens, minlength=sum(num_packs))
    parts = np.split(tokens, np.cumsum(num_packs)[:-1])
    return {group.name: part / group.pack_length for group, part in zip(manifest.groups, parts, strict=True)}


def _bands_of_ours(
    manifest: Manifest, schedule: StoredSchedule, table: _Table, group_names: tuple[str, ...]
) -> tuple[CostBand, ...]:
    num_packs = sum(group.num_packs for group in manifest.groups)
    costs = np.bincount(table.pack_id, weights=table.num_tokens.astype(np.float64) ** 2, minlength=num_packs)
    of_assignments = np.where(schedule.pack_id >= 0, costs[schedule.pack_id], 0.0)  # -1: an empty pack
    return cost_bands(of_assignments, schedule.assignment_offsets, schedule.group, group_names)


def _sources(table: _Table, rejected: pa.Table, recipe: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Per source: rows of its files, samples, tokens, and the share of samples asked for beside the share got.

    Asked for: rows x weight, at most the limit, over the sum of all sources.
    """
    num_sources = len(table.source_names)
    rejected_names, rejected_source = _names_and_indices(rejected, "source")
    num_rejected = np.zeros(num_sources, np.int64)
    for name, count in zip(rejected_names, np.bincount(rejected_source, minlength=len(rejected_names)), strict=True):
        num_rejected[table.source_names.index(name)] += count
    num_rows = np.bincount(_sources_of_used_rows(table), minlength=num_sources) + num_rejected
    num_samples = np.bincount(table.source, minlength=num_sources)
    num_tokens = np.bincount(table.source, weights=table.num_tokens, minlength=num_sources).astype(np.int64)
    num_loss_tokens = np.bincount(table.source, weights=table.num_loss_tokens, minlength=num_sources).astype(np.int64)
    asked = num_rows.astype(np.float64)
    settings = {str(item["name"]): item for item in recipe.get("sources", [])}
    for index, name in enumerate(table.source_names):
        item = settings.get(name, {})
        asked[index] = min(asked[index] * item.get("weight", 1.0), item.get("limit") or np.inf)
    return [
        {
            "name": name,
            "num_rows": int(num_rows[index]),
            "num_rejected": int(num_rejected[index]),
            "num_samples": int(num_samples[index]),
            "num_tokens": int(num_tokens[index]),
            "num_loss_tokens": int(num_loss_tokens[index]),
            "mean_tokens": num_tokens[index] / num_samples[index] if num_samples[index] else None,
            "asked_share": asked[index] / max(asked.sum(), 1.0),
            "got_share": num_samples[index] / num_samples.sum(),
        }
        for index, name in enumerate(table.source_names)
    ]


def _sources_of_used_rows(table: _Table) -> NDArray[np.int64]:
    """The source of every input row that became at least one sample."""
    num_files, num_rows = int(table.file.max()) + 1, int(table.row.max()) + 1
    keys = np.sort((table.source * num_files + table.file) * num_rows + table.row)
    distinct = keys[np.diff(keys, prepend=-1) != 0]
    return np.asarray(distinct // (num_files * num_rows), np.int64)


def _rejected_by_reason(rejected: pa.Table) -> list[dict[str, Any]]:
    """Reasons by falling count, each with the first row that it befell."""
    names, reason = _names_and_indices(rejected, "reason")
    rows = []
    for index, name in enumerate(names):
        of_reason = np.flatnonzero(reason == index)
        if len(of_reason):
            first = rejected.slice(int(of_reason[0]), 1).to_pylist()[0]
            example = {key: first[key] for key in ("file", "row", "detail")}
            rows.append({"reason": name, "num_rows": len(of_reason), "example": example})
    return sorted(rows, key=lambda row: (-row["num_rows"], row["reason"]))
