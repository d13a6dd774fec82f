"""FlexSP (arXiv 2412.01523): for every batch, flexible sequence-parallel groups chosen by a mixed-integer program.

A batch's samples are sorted into length buckets. The program chooses how many GPU groups of each SP degree run side by
side and how many samples of every bucket go to each degree, so that the mean group ends within a limit of seconds,
which bisection lowers, with the fewest tokens under sequence parallelism; inside a degree samples go longest first to
the least busy group with room. The paper's program assigns to single groups; this one is its sum over equal groups, and
reaches less than the paper prints. A group of SP degree s holds s x (tokens of one GPU). Groups of one micro-step
differ, so there is no schedule in the contract's sense, only figures. A baseline.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.metrics import HOURS_PER_DAY, SECONDS_PER_HOUR
from hbp_prep.planning.randomness import generator
from hbp_prep.planning.types import Int64, PlanSpec, Samples

NUM_BUCKETS = 8
SECONDS_LIMIT = 0.2
"""Deterministic seconds of the solver for one batch."""
FILL = 0.85
"""A batch holds this share of the cluster's memory: whole samples do not fill every group exactly."""
MOST_BATCHES = 40
"""More batches are not planned: evenly chosen ones stand for all."""
BISECTIONS = 8
"""Of the seconds that the slowest group may take; for each the program only has to find a plan."""
MICROSECONDS = 1e6


@dataclass(frozen=True, kw_only=True)
class _Group:
    sp_degree: int
    tokens: int
    attention: int
    seconds: float


def flexsp(spec: PlanSpec, samples: Samples, cost: CostModel) -> Mapping[str, Any]:
    """Figures of FlexSP with one GPU's memory that of ``spec``'s longest pack divided by its SP degree."""
    longest = spec.groups[-1]
    memory_tokens = longest.pack_length // longest.sp_degree
    batches = _batches(spec, samples, int(memory_tokens * spec.world_size * FILL))
    chosen = np.unique(np.linspace(0, len(batches) - 1, min(len(batches), MOST_BATCHES)).astype(int))
    lengths = samples.num_tokens.astype(np.int64)
    planned = [
        groups
        for index in chosen.tolist()
        for groups in _plan_batch(spec, lengths[batches[index]], memory_tokens, cost)
    ]
    return _figures(spec, planned, memory_tokens, len(batches) / len(chosen))


def _batches(spec: PlanSpec, samples: Samples, tokens: int) -> list[Int64]:
    order = generator(spec.seed, "pack").permutation(len(samples))
    ends = np.cumsum(samples.num_tokens[order].astype(np.int64))
    return [
        batch for batch in np.split(order, np.searchsorted(ends, np.arange(tokens, ends[-1], tokens))) if len(batch)
    ]


def _plan_batch(spec: PlanSpec, lengths: Int64, memory_tokens: int, cost: CostModel) -> list[list[_Group]]:
    """Micro-steps of one batch: one where a plan fits the memory, else those of its halves."""
    ordered = np.sort(lengths)[::-1]
    groups = _micro_step(spec, ordered, memory_tokens, cost)
    if groups is not None:
        return [groups]
    if len(ordered) == 1:
        degree = spec.groups[-1].sp_degree
        return [_groups_of({degree: [ordered]}, spec, cost)]
    halves = (ordered[::2], ordered[1::2])
    return [groups for half in halves for groups in _plan_batch(spec, half, memory_tokens, cost)]


def _micro_step(spec: PlanSpec, ordered: Int64, memory_tokens: int, cost: CostModel) -> list[_Group] | None:
    """The quickest groups that the program and then longest-first assignment find; ``None`` where memory is short."""
    buckets = [bucket for bucket in np.array_split(ordered, NUM_BUCKETS) if len(bucket)]
    degrees = [2**power for power in range(spec.groups[-1].sp_degree.bit_length())]
    seconds = {degree: _sample_seconds(spec, buckets, degree, cost) for degree in degrees}
    best = None
    even = sum(len(bucket) * one for bucket, one in zip(buckets, seconds[1], strict=True)) / spec.world_size
    low, high = even, 4 * even + min(max(of_degree) for of_degree in seconds.values())
    for _ in range(BISECTIONS):
        limit = (low + high) / 2
        counts = _solve(spec.world_size, buckets, seconds, limit, memory_tokens)
        placed = None if counts is None else _place(buckets, counts, memory_tokens, seconds)
        if placed is None:
            low = limit
        else:
            best, high = placed, limit
    return None if best is None else _groups_of(best, spec, cost)


def _sample_seconds(spec: PlanSpec, buckets: list[Int64], degree: int, cost: CostModel) -> list[float]:
    """Seconds of one sample of each bucket's longest length, without what every micro-step costs anyway."""
    longest = np.array([bucket[0] for bucket in buckets])
    gc_layers = spec.groups[-1].gc_layers
    seconds = cost.pack_seconds(longest, longest**2, sp_degree=degree, gc_layers=gc_layers)
    return [float(value) - cost.hardware.fixed_seconds for value in seconds]


def _solve(
    world_size: int, buckets: list[Int64], seconds: dict[int, list[float]], limit: float, memory_tokens: int
) -> tuple[dict[int, int], dict[int, list[int]]] | None:
    """Groups per SP degree, and samples of every bucket per SP degree, the mean group within ``limit``."""
    model = cp_model.CpModel()
    num_groups = {degree: model.new_int_var(0, world_size // degree, f"groups {degree}") for degree in seconds}
    counts = {
        degree: [model.new_int_var(0, len(bucket), f"{degree} {index}") for index, bucket in enumerate(buckets)]
        for degree in seconds
    }
    model.add(sum(degree * number for degree, number in num_groups.items()) <= world_size)
    for index, bucket in enumerate(buckets):
        model.add(sum(counts[degree][index] for degree in seconds) == len(bucket))
    tokens = [int(bucket[0]) for bucket in buckets]
    for degree, of_sample in seconds.items():
        room = degree * memory_tokens
        mean_tokens = [math.ceil(bucket.mean()) for bucket in buckets]
        model.add(cp_model.LinearExpr.weighted_sum(counts[degree], mean_tokens) <= room * num_groups[degree])
        micros = [round(MICROSECONDS * value) for value in of_sample]
        spent = cp_model.LinearExpr.weighted_sum(counts[degree], micros)
        model.add(spent <= round(MICROSECONDS * limit) * num_groups[degree])
        for count, length in zip(counts[degree], tokens, strict=True):
            if length > room:
                model.add(count == 0)
    in_sp = [cp_model.LinearExpr.weighted_sum(counts[degree], tokens) for degree in seconds if degree > 1]
    model.minimize(sum(in_sp))
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = SECONDS_LIMIT
    solver.parameters.num_workers = 1
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return (
        {degree: solver.value(number) for degree, number in num_groups.items()},
        {degree: [solver.value(count) for count in row] for degree, row in counts.items()},
    )


def _place(
    buckets: list[Int64],
    solved: tuple[dict[int, int], dict[int, list[int]]],
    memory_tokens: int,
    seconds: dict[int, list[float]],
) -> dict[int, list[Int64]] | None:
    """Samples into groups, longest first, each into the group with the least seconds that has room.

    Returns:
        {SP degree: lengths of every group}, or ``None`` where a sample finds no room.
    """
    num_groups, counts = solved
    taken = [0] * len(buckets)
    placed: dict[int, list[Int64]] = {}
    for degree, number in num_groups.items():
        members: list[list[int]] = [[] for _ in range(number)]
        tokens, busy = np.zeros(number, dtype=np.int64), np.zeros(number)
        for index, bucket in enumerate(buckets):
            for length in bucket[taken[index] : taken[index] + counts[degree][index]].tolist():
                fits = np.flatnonzero(tokens + length <= degree * memory_tokens)
                if not len(fits):
                    return None
                chosen = int(fits[np.argmin(busy[fits])])
                members[chosen].append(length)
                tokens[chosen] += length
                busy[chosen] += seconds[degree][index]
            taken[index] += counts[degree][index]
        placed[degree] = [np.array(group, dtype=np.int64) for group in members]
    return placed


def _groups_of(placed: dict[int, list[Int64]], spec: PlanSpec, cost: CostModel) -> list[_Group]:
    """Groups with their figures; a group without samples, and every GPU in no group, idles."""
    groups = []
    idle = spec.world_size
    for degree, members in placed.items():
        for lengths in members:
            tokens, attention = int(lengths.sum()), int((lengths**2).sum())
            idle -= degree
            second = cost.pack_seconds(
                np.array([tokens]), np.array([attention]), sp_degree=degree, gc_layers=spec.groups[-1].gc_layers
            )
            groups.append(_Group(sp_degree=degree, tokens=tokens, attention=attention, seconds=float(second[0])))
    return [*groups, *(_Group(sp_degree=1, tokens=0, attention=0, seconds=0.0) for _ in range(idle))]


def _figures(spec: PlanSpec, planned: list[list[_Group]], memory_tokens: int, scale: float) -> dict[str, Any]:
    """Metrics over GPUs: a group of SP degree s is s GPUs, each with 1/s of its tokens and attention."""
    imbalances = np.array([_imbalances(groups) for groups in planned])
    waits = np.array([_attention_wait(groups) for groups in planned])
    tokens = sum(group.tokens for groups in planned for group in groups)
    in_sp = sum(group.tokens for groups in planned for group in groups if group.sp_degree > 1)
    room = len(planned) * spec.world_size * memory_tokens
    hours = scale * sum(max(group.seconds for group in groups) for groups in planned) / SECONDS_PER_HOUR
    return {
        "dbr": float(imbalances[:, 0].mean()),
        "abr": float(imbalances[:, 1].mean()),
        "tbr": float(imbalances[:, 2].mean()),
        "wabr": float(1 - waits[:, 0].sum() / waits[:, 1].sum()),
        "pr": 1 - tokens / room,
        "cr": in_sp / tokens,
        "num_micro_steps": round(scale * len(planned)),
        "predicted_hours": hours,
        "predicted_gpu_days": hours * spec.world_size / HOURS_PER_DAY,
    }


def _imbalances(groups: list[_Group]) -> list[float]:
    """Imbalance over GPUs of tokens, attention and seconds."""
    width = np.array([group.sp_degree for group in groups], dtype=np.float64)
    per_gpu = np.array([[one.tokens, one.attention, one.seconds * one.sp_degree] for one in groups], dtype=float)
    per_gpu /= width[:, None]
    mean, largest = np.average(per_gpu, axis=0, weights=width), per_gpu.max(axis=0)
    return (1 - np.divide(mean, largest, out=np.ones(3), where=largest > 0)).tolist()


def _attention_wait(groups: list[_Group]) -> tuple[float, float]:
    """Mean and largest attention of a GPU."""
    width = [group.sp_degree for group in groups]
    shares = [group.attention / group.sp_degree for group in groups]
    return float(np.average(shares, weights=width)), max(shares)
