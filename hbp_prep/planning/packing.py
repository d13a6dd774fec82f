"""Samples into packs: by a published strategy inside every packing group, or by ``balanced``, which compares plans.

``balanced`` makes several candidates and keeps the one with the least predicted time:

- the packing groups filled one after another with shuffled best fit, as any strategy fills them;
- two-dimensional packing (:mod:`hbp_prep.planning.balanced`) in the layout with the fewest long micro-steps, in one
  with a long micro-step more, and in both with samples sent to a longer group from a lower length on.

Each is rebalanced before it is judged. On large corpora one candidate is near the bound already, and time counts: there
only the first layout is tried. Cost: under a second for 1M samples, a few seconds for small corpora.
"""

from dataclasses import replace

import numpy as np

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.assemble import sum_by_pack
from hbp_prep.planning.balanced import balanced
from hbp_prep.planning.curriculum import can_open
from hbp_prep.planning.filling import Filled, fill
from hbp_prep.planning.metrics import seconds_of_packs
from hbp_prep.planning.rebalance import rebalance
from hbp_prep.planning.strategies import BALANCED
from hbp_prep.planning.types import Int32, Int64, PlanSpec

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
    candidates = _candidates(spec, num_tokens)
    if spec.order != "random":
        candidates = [rebalance(spec, num_tokens, candidate) for candidate in candidates]
    if len(candidates) == 1:
        return candidates[0]
    return min(candidates, key=lambda candidate: predicted_seconds(spec, num_tokens, candidate, cost))


def _candidates(spec: PlanSpec, num_tokens: Int32) -> list[Filled]:
    if spec.strategy != BALANCED:
        return [fill(spec, num_tokens)]
    compares = len(num_tokens) <= MOST_COMPARED
    layouts = balanced(spec, num_tokens, ROUTED, EXTRA_MICRO_STEPS) if compares else balanced(spec, num_tokens)
    packings = [packing for packing in layouts if can_open(spec, _micro_steps_by_group(spec, packing))]
    if compares or not packings:
        packings.insert(0, fill(replace(spec, strategy=FILLING), num_tokens))
    return packings


def predicted_seconds(spec: PlanSpec, num_tokens: Int32, filled: Filled, cost: CostModel) -> float:
    """Seconds of one epoch, with the packs of every group sorted by attention cost and cut into micro-steps."""
    lengths = num_tokens.astype(np.int64)
    group, num_packs = filled.group_of_pack, len(filled.group_of_pack)
    tokens = sum_by_pack(filled.pack_of_sample, lengths, num_packs)
    attention = sum_by_pack(filled.pack_of_sample, lengths * lengths, num_packs)
    by_cost = np.lexsort((attention, group))
    seconds = seconds_of_packs(spec, group, tokens, attention, cost)[by_cost]
    sizes = np.repeat(_dp_sizes(spec), _micro_steps_by_group(spec, filled))
    return float(np.maximum.reduceat(seconds, np.cumsum(sizes) - sizes).sum())


def _dp_sizes(spec: PlanSpec) -> Int64:
    return np.array([spec.dp_size(index) for index in range(len(spec.groups))], dtype=np.int64)


def _micro_steps_by_group(spec: PlanSpec, filled: Filled) -> Int64:
    return np.bincount(filled.group_of_pack, minlength=len(spec.groups)) // _dp_sizes(spec)
