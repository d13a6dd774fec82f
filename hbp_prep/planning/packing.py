"""Samples into packs: by a published strategy inside every packing group, or by ``balanced``, which compares plans.

``balanced`` makes several candidates and keeps the one with the least predicted time:

- the packing groups filled one after another with shuffled best fit, as any strategy fills them;
- two-dimensional packing (:mod:`hbp_prep.planning.balanced`) in the layout with the fewest long micro-steps, in one
  with a long micro-step more, and in both with samples sent to a longer group from a lower length on.

Each is rebalanced before it is judged. On large corpora one candidate is near the bound already, and time counts: there
only the first layout is tried. Cost: under a second for 1M samples, a few seconds for small corpora.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.balanced import balanced
from hbp_prep.planning.filling import Filled, fill
from hbp_prep.planning.rebalance import rebalance
from hbp_prep.planning.strategies import BALANCED
from hbp_prep.planning.types import Int32, PlanSpec

FILLING = "bfs"
"""The strategy of the candidate that is filled group by group: shuffled, so that its steps look like the corpus."""

MOST_COMPARED = 100_000
"""Samples up to which several layouts are compared."""

ROUTED = (1.0, 0.875, 0.75, 0.5625)
"""Longest sample of a group, as shares of its packing length; what is longer must go to a longer group."""

EXTRA_MICRO_STEPS = (0, 1)


def pack_samples(spec: PlanSpec, num_tokens: Int32, cost: CostModel) -> Filled:
    """Put every sample into one pack, by ``spec.strategy``, and even out the packs unless the order is random.

    Args:
        spec: Packing groups, world size, strategy, order and seed.
        num_tokens: int32[N], each 1 .. the longest packing length, at least one sample.
        cost: Judges candidates.

    Raises:
        PlanError: there are too few samples for the longest packing group's data-parallel ranks.
    """
    if spec.strategy != BALANCED:
        filled = fill(spec, num_tokens)
        return filled if spec.order == "random" else rebalance(spec, num_tokens, filled)
    best: Filled | None = None
    least = np.inf
    for candidate in _candidates(spec, num_tokens):
        even = rebalance(spec, num_tokens, candidate)
        seconds = predicted_seconds(spec, num_tokens, even, cost)
        if seconds < least:
            best, least = even, seconds
    return best if best is not None else rebalance(spec, num_tokens, _filled(spec, num_tokens))


def _candidates(spec: PlanSpec, num_tokens: Int32) -> Iterator[Filled]:
    few = len(num_tokens) <= MOST_COMPARED
    if few:
        yield _filled(spec, num_tokens)
    for routed in ROUTED if few and len(spec.groups) > 1 else ROUTED[:1]:
        for extra in EXTRA_MICRO_STEPS if few and len(spec.groups) > 1 else EXTRA_MICRO_STEPS[:1]:
            candidate = balanced(spec, num_tokens, routed=routed, extra=extra)
            if candidate is not None:
                yield candidate


def _filled(spec: PlanSpec, num_tokens: Int32) -> Filled:
    return fill(replace(spec, strategy=FILLING), num_tokens)


def predicted_seconds(spec: PlanSpec, num_tokens: Int32, filled: Filled, cost: CostModel) -> float:
    """Seconds of one epoch, with the packs of every group sorted by attention cost and cut into micro-steps."""
    lengths = num_tokens.astype(np.float64)
    num_packs = len(filled.group_of_pack)
    tokens = np.bincount(filled.pack_of_sample, weights=lengths, minlength=num_packs).astype(np.float64)
    attention = np.bincount(filled.pack_of_sample, weights=np.square(lengths), minlength=num_packs).astype(np.float64)
    total = 0.0
    for index, group in enumerate(spec.groups):
        own = np.flatnonzero(filled.group_of_pack == index)
        own = own[np.argsort(attention[own], kind="stable")]
        seconds = cost.pack_seconds(tokens[own], attention[own], sp_degree=group.sp_degree, gc_layers=group.gc_layers)
        total += float(seconds.reshape(-1, spec.dp_size(index)).max(axis=1, initial=0).sum())
    return total
