"""The figures of a plan, each defined once, in 64-bit floats. docs/metrics.md says what they mean for training.

For one micro-step with N DP ranks and a quantity x_d per rank, its imbalance is sum(max - x_d) / (max * N), that is
1 - mean / max, and 0 where max is 0:

- ``dbr``: of tokens; ``abr``: of attention cost; ``tbr``: of predicted seconds. In totals: the unweighted mean over all
  micro-steps, none left out.
- ``wabr``, ``wtbr``: 1 - sum of means / sum of maxima over micro-steps: the share of attention work, or of predicted
  time, that ranks spend waiting.
- ``pr``: unfilled room of packs / room. ``pr_executed``: padding / positions where a pack is padded to the least
  multiple of both its SP degree and ``ALIGNMENT_TOKENS``, but not beyond its packing length.
- ``cr``: tokens in packs with an SP degree above 1 / all tokens. ``cr_floor``: tokens of samples longer than the
  longest packing length with SP degree 1 / all tokens; no plan with these packing groups can have a lower ``cr``.
- ``ave_tokens``: tokens that one DP rank handles in one optimizer step: tokens of a micro-step / DP size of its packing
  group, summed over the step's micro-steps; the mean over steps.
- ``batch_bias``: total-variation distance between a step's token share by source and the corpus's (``mean``, ``p95``
  over steps; ``random_mean``, ``random_p95``: of the same numbers of packs drawn at random); ``samples_per_step_cv``,
  the coefficient of variation of the number of samples in a step; and ``order_drift``, how far from a random order
  samples are trained: the token-weighted correlation of a sample's rank by length with its step, without sign.
- an empty pack counts as a rank with nothing: 0 tokens, 0 attention, 0 seconds.
- ``predicted_seconds`` of a micro-step: of its slowest rank.

Cost: a few passes over samples and packs; memory steps x sources.
"""

import math
from typing import Any

import numpy as np

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.bounds import plan_bounds
from hbp_prep.planning.randomness import generator
from hbp_prep.planning.types import (
    EMPTY_PACK,
    Float64,
    Int16,
    Int32,
    Int64,
    MicroStepMetrics,
    Packs,
    PlanSpec,
    Samples,
    Schedule,
)

ALIGNMENT_TOKENS = 128
"""Attention kernels work in tiles of 128 positions."""

SECONDS_PER_HOUR = 3600.0
HOURS_PER_DAY = 24.0


def pack_seconds(spec: PlanSpec, packs: Packs, cost: CostModel) -> Float64:
    """Predicted seconds of each pack, float64[P]."""
    return seconds_of_packs(spec, packs.group, packs.num_tokens, packs.attention_cost, cost)


def seconds_of_packs(
    spec: PlanSpec, group: Int16, num_tokens: Int32 | Int64, attention: Int64, cost: CostModel
) -> Float64:
    """The same, float64[P], from int16[P] packing groups, tokens and attention costs."""
    seconds = np.zeros(len(group))
    for index, each in enumerate(spec.groups):
        own = group == index
        seconds[own] = cost.pack_seconds(
            num_tokens[own], attention[own], sp_degree=each.sp_degree, gc_layers=each.gc_layers
        )
    return seconds


def micro_step_metrics(packs: Packs, schedule: Schedule, seconds: Float64) -> MicroStepMetrics:
    """Figures of every micro-step.

    Args:
        packs: P packs.
        schedule: U micro-steps.
        seconds: float64[P], predicted seconds of each pack.
    """
    starts = schedule.assignment_offsets[:-1]
    assigned_seconds = _assigned(seconds, schedule)
    return MicroStepMetrics(
        num_tokens=np.add.reduceat(_assigned(packs.num_tokens.astype(np.int64), schedule), starts),
        num_loss_tokens=np.add.reduceat(_assigned(packs.num_loss_tokens.astype(np.int64), schedule), starts),
        abr=_imbalance(_assigned(packs.attention_cost, schedule), schedule.assignment_offsets),
        dbr=_imbalance(_assigned(packs.num_tokens, schedule), schedule.assignment_offsets),
        tbr=_imbalance(assigned_seconds, schedule.assignment_offsets),
        predicted_seconds=np.maximum.reduceat(assigned_seconds, starts),
    )


def plan_metrics(
    spec: PlanSpec,
    samples: Samples,
    packs: Packs,
    schedule: Schedule,
    micro_steps: MicroStepMetrics,
    seconds: Float64,
) -> dict[str, Any]:
    """The metrics dictionary: plain JSON data, no NaN.

    Args:
        spec: The plan's settings.
        samples: N samples.
        packs: P packs.
        schedule: U micro-steps.
        micro_steps: Of the schedule.
        seconds: float64[P], predicted seconds of each pack.
    """
    everything = np.ones(len(schedule), dtype=bool)
    in_sp = np.array([group.sp_degree > 1 for group in spec.groups])[packs.group]
    num_tokens = int(samples.num_tokens.sum(dtype=np.int64))
    hours = float(micro_steps.predicted_seconds.sum()) / SECONDS_PER_HOUR
    per_rank = micro_steps.num_tokens / np.diff(schedule.assignment_offsets)
    num_steps = int(schedule.step[-1]) + 1
    return {
        **_balance(packs, schedule, micro_steps, seconds, everything),
        **_padding(spec, packs, np.ones(len(packs), dtype=bool)),
        "executed_alignment_tokens": ALIGNMENT_TOKENS,
        "cr": float(packs.num_tokens[in_sp].sum(dtype=np.int64)) / num_tokens,
        "cr_floor": cr_floor(spec, samples),
        "ave_tokens": float(per_rank.sum()) / num_steps,
        "num_samples": len(samples),
        "num_tokens": num_tokens,
        "num_loss_tokens": int(samples.num_loss_tokens.sum(dtype=np.int64)),
        "num_packs": len(packs),
        "num_micro_steps": len(schedule),
        "num_steps": num_steps,
        "predicted_hours": hours,
        "predicted_gpu_days": hours * spec.world_size / HOURS_PER_DAY,
        "batch_bias": _batch_bias(spec, samples, packs, schedule),
        "bounds": plan_bounds(spec, samples, packs),
        "packing_groups": _by_group(spec, packs, schedule, micro_steps, seconds),
    }


def cr_floor(spec: PlanSpec, samples: Samples) -> float:
    """Share of tokens in samples that only fit packing groups with an SP degree above 1."""
    longest = max((group.pack_length for group in spec.groups if group.sp_degree == 1), default=0)
    lengths = samples.num_tokens.astype(np.int64)
    return float(lengths[lengths > longest].sum()) / float(lengths.sum())


def _assigned(values: Any, schedule: Schedule) -> Any:
    """Values of packs per assignment; 0 for an empty pack."""
    return np.append(values, values.dtype.type(0))[schedule.assignment_packs]


def _imbalance(values: Int32 | Int64 | Float64, offsets: Int64) -> Float64:
    """1 - mean / max within each micro-step; 0 where the maximum is 0."""
    largest = np.maximum.reduceat(values, offsets[:-1]).astype(np.float64)
    mean = np.add.reduceat(values.astype(np.float64), offsets[:-1]) / np.diff(offsets)
    return 1.0 - np.divide(mean, largest, out=np.ones_like(mean), where=largest > 0)


def _waiting_share(values: Int64 | Float64, schedule: Schedule, chosen: Any) -> float:
    """1 - sum of means / sum of maxima over the chosen micro-steps; 0 where there is nothing."""
    offsets = schedule.assignment_offsets
    assigned = _assigned(values, schedule).astype(np.float64)
    largest = np.maximum.reduceat(assigned, offsets[:-1])[chosen].sum()
    mean = (np.add.reduceat(assigned, offsets[:-1]) / np.diff(offsets))[chosen].sum()
    return float(1.0 - mean / largest) if largest > 0 else 0.0


def _balance(
    packs: Packs, schedule: Schedule, micro_steps: MicroStepMetrics, seconds: Float64, chosen: Any
) -> dict[str, float]:
    return {
        "abr": _mean(micro_steps.abr[chosen]),
        "wabr": _waiting_share(packs.attention_cost, schedule, chosen),
        "dbr": _mean(micro_steps.dbr[chosen]),
        "tbr": _mean(micro_steps.tbr[chosen]),
        "wtbr": _waiting_share(seconds, schedule, chosen),
    }


def _padding(spec: PlanSpec, packs: Packs, chosen: Any) -> dict[str, float]:
    group = packs.group[chosen]
    tokens = packs.num_tokens[chosen].astype(np.int64)
    room = np.array([group.pack_length for group in spec.groups], dtype=np.int64)[group]
    multiple = np.array([math.lcm(group.sp_degree, ALIGNMENT_TOKENS) for group in spec.groups], dtype=np.int64)[group]
    executed = np.minimum(-(-tokens // multiple) * multiple, room)
    return {"pr": _unused(tokens, room), "pr_executed": _unused(tokens, executed)}


def _unused(used: Int64, room: Int64) -> float:
    return 1.0 - float(used.sum()) / float(room.sum()) if room.size else 0.0


def _batch_bias(spec: PlanSpec, samples: Samples, packs: Packs, schedule: Schedule) -> dict[str, float]:
    pack_of_sample = packs.of_samples()
    num_samples = np.diff(packs.offsets)
    dp_sizes = np.diff(schedule.assignment_offsets)
    is_real = schedule.assignment_packs != EMPTY_PACK
    assigned = schedule.assignment_packs[is_real]
    step_of_assignment = np.repeat(schedule.step, dp_sizes)[is_real].astype(np.int64)
    epoch_of_assignment = np.repeat(schedule.epoch, dp_sizes)[is_real]
    ours, random, samples_per_step, moves = [], [], [], []
    for epoch in range(spec.epochs):
        own = epoch_of_assignment == epoch
        step_of_pack = np.empty(len(packs), dtype=np.int64)
        step_of_pack[assigned[own]] = step_of_assignment[own] - step_of_assignment[own][0]
        rng = generator(spec.seed, "random steps", epoch)
        shuffled = rng.permutation(step_of_pack)
        ours.append(_source_distance(samples, step_of_pack[pack_of_sample]))
        random.append(_source_distance(samples, shuffled[pack_of_sample]))
        samples_per_step.append(np.bincount(step_of_pack, weights=num_samples))
        moves.append(_length_drift(samples, step_of_pack[pack_of_sample]))
    distances: Float64 = np.concatenate(ours)
    random_distances: Float64 = np.concatenate(random)
    per_step = np.concatenate(samples_per_step)
    return {
        "mean": _mean(distances),
        "p95": float(np.percentile(distances, 95)),
        "random_mean": _mean(random_distances),
        "random_p95": float(np.percentile(random_distances, 95)),
        "samples_per_step_cv": float(per_step.std() / per_step.mean()),
        "order_drift": float(np.mean(moves)),
    }


def _length_drift(samples: Samples, step_of_sample: Int64) -> float:
    """How far samples stand from a random order: |rank correlation of length and step|, 0 random, 1 fully sorted.

    Over tokens: each sample weighs by its length, and so do the ranks' means.
    """
    if step_of_sample.max() == 0 or samples.num_tokens.min() == samples.num_tokens.max():
        return 0.0
    weights = samples.num_tokens.astype(np.float64)
    place = step_of_sample.astype(np.float64)
    length_rank = np.empty(len(samples))
    length_rank[np.argsort(samples.num_tokens, kind="stable")] = np.arange(len(samples))
    place -= np.average(place, weights=weights)
    length_rank -= np.average(length_rank, weights=weights)
    norm = math.sqrt(float((weights * place**2).sum()) * float((weights * length_rank**2).sum()))
    return abs(float((weights * place * length_rank).sum())) / norm if norm > 0 else 0.0


def _source_distance(samples: Samples, step_of_sample: Int64) -> Float64:
    """Total-variation distance of each step's token share by source from the corpus's, float64[steps]."""
    num_sources = len(samples.source_names)
    num_steps = int(step_of_sample.max()) + 1
    cell = step_of_sample * num_sources + samples.source
    tokens = np.bincount(cell, weights=samples.num_tokens, minlength=num_steps * num_sources)
    tokens = tokens.reshape(num_steps, num_sources)
    corpus = tokens.sum(axis=0) / tokens.sum()
    return 0.5 * np.abs(tokens / tokens.sum(axis=1, keepdims=True) - corpus).sum(axis=1)


def _by_group(
    spec: PlanSpec, packs: Packs, schedule: Schedule, micro_steps: MicroStepMetrics, seconds: Float64
) -> list[dict[str, Any]]:
    num_samples = np.diff(packs.offsets)
    rows = []
    for index, group in enumerate(spec.groups):
        own, chosen = packs.group == index, schedule.group == index
        rows.append(
            {
                "name": group.name,
                "pack_length": group.pack_length,
                "sp_degree": group.sp_degree,
                "dp_size": spec.dp_size(index),
                "gc_layers": group.gc_layers,
                "num_packs": int(own.sum()),
                "num_micro_steps": int(chosen.sum()),
                "num_samples": int(num_samples[own].sum()),
                "num_tokens": int(packs.num_tokens[own].sum(dtype=np.int64)),
                "attention_cost": int(packs.attention_cost[own].sum()),
                "predicted_hours": float(micro_steps.predicted_seconds[chosen].sum()) / SECONDS_PER_HOUR,
                **_balance(packs, schedule, micro_steps, seconds, chosen),
                **_padding(spec, packs, own),
            }
        )
    return rows


def _mean(values: Float64) -> float:
    return float(values.mean()) if values.size else 0.0
