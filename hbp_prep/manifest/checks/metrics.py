"""The metrics computed again from the bytes, in plain numpy, apart from the planner, and compared with those printed.

Definitions: "Hierarchical Balance Packing", arXiv 2503.07680 (ABR, DBR, PR, CR, Ave-T), and docs/metrics.md for the
others. An imbalance of one micro-step over its N DP ranks is ``sum(max - x) / (max * N)``; the run's is the unweighted
mean over all micro-steps. ``batch_bias`` and ``bounds`` are not computed again: they describe alternatives (random
steps, other plans), not these bytes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbp_prep.cost.model import CostModel
from hbp_prep.manifest.checks.findings import Findings
from hbp_prep.manifest.checks.placement import PackTable
from hbp_prep.manifest.schedule import Schedule
from hbp_prep.manifest.schema import Manifest

Array = NDArray[Any]
Floats = NDArray[np.float64]

TOLERANCE = 1e-6
ALIGNMENT_TOKENS = 128
"""``pr_executed`` counts padding to a multiple of this and of the SP degree, but not beyond the packing length."""


@dataclass(frozen=True, kw_only=True)
class MicroStepFigures:
    """Per micro-step, each float64[U]; ``*_max`` and ``*_mean`` are over its DP ranks."""

    abr: Floats
    dbr: Floats
    tbr: Floats
    predicted_seconds: Floats
    attention_max: Floats
    attention_mean: Floats
    seconds_mean: Floats


def check_metrics(
    manifest: Manifest, schedule: Schedule, packs: PackTable, sample_tokens: Array, findings: Findings
) -> None:
    """Compare the figures of every micro-step, of the run and of every packing group, within 1e-6 (of 1 or of size).

    Args:
        packs: As the shards have them.
        sample_tokens: int32[N], tokens of every sample.

    Raises:
        ConfigError: the manifest's cost model is not one.
    """
    figures = micro_step_figures(manifest, schedule, packs)
    for name in ("abr", "dbr", "tbr", "predicted_seconds"):
        stated, found = getattr(schedule, name), getattr(figures, name)
        wrong = np.flatnonzero(np.isnan(stated) | (np.abs(stated - found) > TOLERANCE * np.maximum(1.0, found)))
        if len(wrong):
            index = int(wrong[0])
            findings.add(
                "metrics",
                f"step {schedule.step[index]}, micro_step {schedule.micro_step[index]}: {name} is {stated[index]}, "
                f"the packs give {found[index]:.7g}",
            )
    expected = run_figures(manifest, schedule, packs, sample_tokens, figures)
    _compare(manifest.metrics, expected, "metrics", findings)
    stated_groups = _objects(manifest.metrics.get("packing_groups"))
    if [stated.get("name") for stated in stated_groups] != [group.name for group in manifest.groups]:
        findings.add("metrics", "metrics.packing_groups does not name the packing groups in order")
        return
    for index, (group, stated) in enumerate(zip(manifest.groups, stated_groups, strict=True)):
        expected = group_figures(manifest, schedule, packs, figures, index)
        _compare(stated, expected, f"metrics.packing_groups {group.name}", findings)


def micro_step_figures(manifest: Manifest, schedule: Schedule, packs: PackTable) -> MicroStepFigures:
    """Balance and predicted time of every micro-step.

    Raises:
        ConfigError: the manifest's cost model is not one.
    """
    cost_model = CostModel.from_dict(manifest.cost_model)
    seconds_of_pack = np.zeros(len(packs))
    for index, group in enumerate(manifest.groups):
        mine = packs.group == index
        seconds_of_pack[mine] = cost_model.pack_seconds(
            packs.num_tokens[mine], packs.attention_cost[mine], sp_degree=group.sp_degree, gc_layers=group.gc_layers
        )
    tokens = _spread(packs.num_tokens, schedule)
    attention = _spread(packs.attention_cost, schedule)
    seconds = _spread(seconds_of_pack, schedule)
    return MicroStepFigures(
        abr=_imbalance(attention, schedule),
        dbr=_imbalance(tokens, schedule),
        tbr=_imbalance(seconds, schedule),
        predicted_seconds=_largest(seconds, schedule),
        attention_max=_largest(attention, schedule),
        attention_mean=_mean(attention, schedule),
        seconds_mean=_mean(seconds, schedule),
    )


def run_figures(
    manifest: Manifest, schedule: Schedule, packs: PackTable, sample_tokens: Array, figures: MicroStepFigures
) -> dict[str, float]:
    """The run's figures, by their names in ``manifest.metrics``."""
    longest_without_sp = max((group.pack_length for group in manifest.groups if group.sp_degree == 1), default=0)
    num_tokens = int(packs.num_tokens.sum())
    in_sp = np.array([group.sp_degree > 1 for group in manifest.groups])[packs.group]
    must_communicate = int(sample_tokens[sample_tokens > longest_without_sp].sum(dtype=np.int64))
    dp_size = np.array([group.dp_size for group in manifest.groups])[schedule.group]
    num_steps = len(schedule.step_offsets) - 1
    hours = float(figures.predicted_seconds.sum()) / 3600
    return {
        **_balance(figures, np.ones(len(schedule), np.bool_)),
        **_padding(manifest, packs, np.ones(len(packs), np.bool_)),
        "executed_alignment_tokens": ALIGNMENT_TOKENS,
        "cr": int(packs.num_tokens[in_sp].sum()) / num_tokens,
        "cr_floor": must_communicate / num_tokens,
        "ave_tokens": float((_sum(_spread(packs.num_tokens, schedule), schedule) / dp_size).sum()) / num_steps,
        "num_samples": len(sample_tokens),
        "num_tokens": num_tokens,
        "num_loss_tokens": int(packs.num_loss_tokens.sum()),
        "num_packs": len(packs),
        "num_micro_steps": len(schedule),
        "num_steps": num_steps,
        "predicted_hours": hours,
        "predicted_gpu_days": hours * manifest.world_size / 24,
    }


def group_figures(
    manifest: Manifest, schedule: Schedule, packs: PackTable, figures: MicroStepFigures, index: int
) -> dict[str, float]:
    """One packing group's figures, by their names in ``manifest.metrics["packing_groups"]``."""
    group = manifest.groups[index]
    mine, micro_steps = packs.group == index, schedule.group == index
    return {
        **_balance(figures, micro_steps),
        **_padding(manifest, packs, mine),
        "pack_length": group.pack_length,
        "sp_degree": group.sp_degree,
        "dp_size": group.dp_size,
        "gc_layers": group.gc_layers,
        "num_packs": int(np.count_nonzero(mine)),
        "num_micro_steps": int(np.count_nonzero(micro_steps)),
        "num_samples": int(packs.num_segments[mine].sum()),
        "num_tokens": int(packs.num_tokens[mine].sum()),
        "attention_cost": int(packs.attention_cost[mine].sum()),
        "predicted_hours": float(figures.predicted_seconds[micro_steps].sum()) / 3600,
    }


def _balance(figures: MicroStepFigures, chosen: Array) -> dict[str, float]:
    """Over the chosen micro-steps; 0 where there is none."""
    names = ("abr", "dbr", "tbr")
    means = {name: float(getattr(figures, name)[chosen].mean()) if chosen.any() else 0.0 for name in names}
    return means | {
        "wabr": _waiting_share(figures.attention_mean[chosen], figures.attention_max[chosen]),
        "wtbr": _waiting_share(figures.seconds_mean[chosen], figures.predicted_seconds[chosen]),
    }


def _waiting_share(mean: Floats, largest: Floats) -> float:
    return 1 - float(mean.sum()) / float(largest.sum()) if largest.sum() > 0 else 0.0


def _padding(manifest: Manifest, packs: PackTable, chosen: Array) -> dict[str, float]:
    room = executed = tokens = 0
    for index, group in enumerate(manifest.groups):
        mine = packs.num_tokens[chosen & (packs.group == index)]
        multiple = math.lcm(group.sp_degree, ALIGNMENT_TOKENS)
        room += len(mine) * group.pack_length
        executed += int(np.minimum(-(-mine // multiple) * multiple, group.pack_length).sum())
        tokens += int(mine.sum())
    return {"pr": 1 - tokens / room if room else 0.0, "pr_executed": 1 - tokens / executed if executed else 0.0}


def _compare(stated: Mapping[str, Any], expected: Mapping[str, float], where: str, findings: Findings) -> None:
    for name, value in expected.items():
        found = stated.get(name)
        if not isinstance(found, int | float) or not math.isclose(found, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            findings.add("metrics", f"{where}: {name} is {found!r}, the packs give {value:.9g}")


def _objects(value: object) -> list[dict[str, Any]]:
    """The objects of a JSON list; none where it is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _spread(values: Array, schedule: Schedule) -> Floats:
    """Values of packs, per assignment; 0 for an empty pack."""
    return np.append(values.astype(np.float64), 0.0)[schedule.pack_id]


def _largest(values: Floats, schedule: Schedule) -> Floats:
    return np.maximum.reduceat(values, schedule.assignment_offsets[:-1])


def _sum(values: Floats, schedule: Schedule) -> Floats:
    return np.add.reduceat(values, schedule.assignment_offsets[:-1])


def _mean(values: Floats, schedule: Schedule) -> Floats:
    return _sum(values, schedule) / np.diff(schedule.assignment_offsets)


def _imbalance(values: Floats, schedule: Schedule) -> Floats:
    largest = _largest(values, schedule)
    waiting = np.repeat(largest, np.diff(schedule.assignment_offsets)) - values
    return _mean(waiting, schedule) / np.where(largest > 0, largest, 1)
