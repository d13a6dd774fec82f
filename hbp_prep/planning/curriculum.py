"""The curriculum: which packing groups come when, over all epochs.

``none``: every step draws from all packing groups in proportion. The others open the first epoch with steps of short
packing groups only: ``two_phase`` with the shortest (phase ``short``), then all that is left in proportion (``all``);
``alternate`` likewise, and then whole steps of the shortest group and whole steps of the longer ones in turn
(``alternate``); ``ramp`` lets the longest group grow, one phase per group (``up to 16K``, ...), the last with all.
Later epochs have the same packs and micro-steps in newly drawn steps, all in the last phase.
"""

import numpy as np

from hbp_prep.errors import PlanError
from hbp_prep.planning.balancing import MicroSteps
from hbp_prep.planning.randomness import generator
from hbp_prep.planning.steps import order_of_steps
from hbp_prep.planning.types import Int64, PlanSpec, Schedule

PHASES = {"none": ("all",), "two_phase": ("short", "all"), "alternate": ("short", "alternate"), "ramp": ()}
"""Phases of every kind; those of ``ramp`` are named by packing groups."""


def phase_names(spec: PlanSpec) -> tuple[str, ...]:
    """Names of the phases, in order."""
    if spec.curriculum.kind == "ramp":
        return tuple(f"up to {group.name}" for group in spec.groups)
    return PHASES[spec.curriculum.kind]


def make_schedule(spec: PlanSpec, micro_steps: MicroSteps) -> Schedule:
    """Put the micro-steps into training order.

    Raises:
        PlanError: ``first_phase_steps`` is more than the packing groups of a phase can fill.
    """
    names = phase_names(spec)
    steps: list[Int64] = []
    epochs: list[int] = []
    phases: list[int] = []
    for epoch in range(spec.epochs):
        rng = generator(spec.seed, "steps", epoch)
        left = np.arange(len(micro_steps), dtype=np.int64)
        for phase in range(len(names) - 1 if epoch == 0 else 0):
            chosen = _opening(spec, micro_steps, left, phase, rng)
            drawn = _draw(spec, micro_steps, chosen, rng)
            steps += drawn
            epochs += [0] * len(drawn)
            phases += [phase] * len(drawn)
            left = np.setdiff1d(left, chosen)
        draw = _alternate if spec.curriculum.kind == "alternate" else _draw
        drawn = draw(spec, micro_steps, left, rng)
        steps += drawn
        epochs += [epoch] * len(drawn)
        phases += [len(names) - 1] * len(drawn)
    return _schedule(micro_steps, steps, epochs, phases, names)


def first_phase_steps(spec: PlanSpec, num_micro_steps: int) -> int:
    """Optimizer steps of an opening phase, whose packing groups have ``num_micro_steps`` left.

    Raises:
        PlanError: more are asked for than the group can fill.
    """
    most = num_micro_steps // spec.micro_steps_per_step
    asked = _steps_asked(spec, most)
    if asked > most:
        raise PlanError(
            f"curriculum.first_phase_steps is {asked}, but the packing groups of that phase, from "
            f"{spec.groups[0].name}, have {num_micro_steps} micro-steps: with {spec.micro_steps_per_step} per step "
            f"they can fill at most {most} steps"
        )
    return asked


def can_open(spec: PlanSpec, num_micro_steps: Int64) -> bool:
    """Whether packing groups with these micro-steps, int64[G], can fill the opening phases, and leave none empty."""
    taken = 0
    for phase in range(len(phase_names(spec)) - 1):
        most = (int(num_micro_steps[: phase + 1].sum()) - taken) // spec.micro_steps_per_step
        asked = _steps_asked(spec, most)
        if asked > most or (not most and spec.curriculum.first_phase_fraction):
            return False
        taken += asked * spec.micro_steps_per_step
    return True


def _steps_asked(spec: PlanSpec, most: int) -> int:
    asked = spec.curriculum.first_phase_steps
    return int((spec.curriculum.first_phase_fraction or 0.0) * most) if asked is None else asked


def _opening(spec: PlanSpec, micro_steps: MicroSteps, left: Int64, phase: int, rng: np.random.Generator) -> Int64:
    """An opening phase's micro-steps: evenly over the costs of its groups (the cheapest where steps are sorted)."""
    short = left[micro_steps.group[left] <= phase]
    num_chosen = first_phase_steps(spec, len(short)) * spec.micro_steps_per_step
    if spec.order == "sorted" or not num_chosen:
        return short[:num_chosen]
    evenly = (np.arange(num_chosen) + rng.random()) * len(short) / num_chosen
    return short[evenly.astype(np.int64)]


def _alternate(spec: PlanSpec, micro_steps: MicroSteps, chosen: Int64, rng: np.random.Generator) -> list[Int64]:
    """Whole steps of the shortest group and whole steps of the longer ones, each kind evenly spread over the others."""
    is_long = micro_steps.group[chosen] > 0
    kinds = [_draw(spec, micro_steps, chosen[own], rng) for own in (~is_long, is_long)]
    places = [(position + 0.5) / len(steps) for steps in kinds for position in range(len(steps))]
    steps = [step for kind in kinds for step in kind]
    return [steps[index] for index in np.argsort(places, kind="stable").tolist()]


def _draw(spec: PlanSpec, micro_steps: MicroSteps, chosen: Int64, rng: np.random.Generator) -> list[Int64]:
    steps = order_of_steps(spec.order, micro_steps.group[chosen], spec.micro_steps_per_step, rng)
    return [chosen[step] for step in steps]


def _schedule(
    micro_steps: MicroSteps, steps: list[Int64], epochs: list[int], phases: list[int], names: tuple[str, ...]
) -> Schedule:
    sizes = np.array([len(step) for step in steps], dtype=np.int64)
    sequence = np.concatenate(steps)
    starts = np.cumsum(sizes) - sizes
    num_packs = np.diff(micro_steps.offsets)[sequence]
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(num_packs)])
    # Position of every assignment in micro_steps.packs: the start of its micro-step plus its DP rank.
    dp_rank = np.arange(offsets[-1]) - np.repeat(offsets[:-1], num_packs)
    assignments = micro_steps.packs[np.repeat(micro_steps.offsets[sequence], num_packs) + dp_rank]
    return Schedule(
        epoch=np.repeat(np.array(epochs, dtype=np.int16), sizes),
        step=np.repeat(np.arange(len(steps), dtype=np.int32), sizes),
        micro_step=(np.arange(len(sequence)) - np.repeat(starts, sizes)).astype(np.int16),
        group=micro_steps.group[sequence],
        phase=np.repeat(np.array(phases, dtype=np.int16), sizes),
        phase_names=names,
        assignment_offsets=offsets,
        assignment_packs=assignments,
    )
