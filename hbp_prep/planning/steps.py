"""Micro-steps become optimizer steps.

Sorting by cost holds like with like together; a step made of neighbours would drift far from the corpus. ``stratified``
mends it: the sorted list is cut into as many strata as a step has micro-steps and every step draws one from each, so a
step spans the whole range of costs and holds its fair share of every packing group. Balance is untouched, because it is
judged within a micro-step. Cost: O(U log U).
"""

import numpy as np

from hbp_prep.planning.types import Int16, Int64


def step_sizes(num_micro_steps: int, micro_steps_per_step: int) -> Int64:
    """Micro-steps of each optimizer step: the fewest steps, none larger than asked, as even as can be.

    Returns:
        int64[ceil(num_micro_steps / micro_steps_per_step)]; sizes differ by at most one, spread over the run.
    """
    num_steps = -(-num_micro_steps // micro_steps_per_step)
    ends = np.arange(num_steps + 1, dtype=np.int64) * num_micro_steps // max(num_steps, 1)
    return np.diff(ends)


def order_of_steps(order: str, group: Int16, micro_steps_per_step: int, rng: np.random.Generator) -> list[Int64]:
    """Arrange micro-steps into optimizer steps.

    Args:
        order: ``stratified``, ``sorted`` or ``random``.
        group: int16[U], the packing group of each micro-step, in the order of :class:`MicroSteps` (by group and cost).
        micro_steps_per_step: Most micro-steps in one step.
        rng: Of this draw.

    Returns:
        One int64 array of micro-steps (positions in ``group``) per optimizer step; every micro-step once.
    """
    sizes = step_sizes(len(group), micro_steps_per_step)
    if order == "stratified":
        return _stratified(group, sizes, rng)
    sequence = rng.permutation(len(group)) if order == "random" else np.arange(len(group))
    return np.split(sequence.astype(np.int64), np.cumsum(sizes)[:-1]) if len(sizes) else []


def _stratified(group: Int16, sizes: Int64, rng: np.random.Generator) -> list[Int64]:
    steps: list[list[int]] = [[] for _ in sizes]
    first = 0
    for stratum in range(int(sizes.max(initial=0))):
        takers = np.flatnonzero(sizes > stratum)
        members = np.arange(first, first + len(takers))
        first += len(takers)
        for step, member in zip(takers, _interleaved(members, group[members], rng), strict=True):
            steps[step].append(int(member))
    return [np.array(step, dtype=np.int64) for step in steps]


def _interleaved(members: Int64, group: Int16, rng: np.random.Generator) -> Int64:
    """``members`` in random order, with every packing group spread evenly over the sequence."""
    shuffled = rng.permutation(len(members))
    position = np.empty(len(members))
    for value in np.unique(group):
        own = shuffled[group[shuffled] == value]
        position[own] = (np.arange(len(own)) + rng.random()) / len(own)
    return members[np.argsort(position, kind="stable")]
