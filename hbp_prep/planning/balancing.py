"""Balance batching: packs of one packing group become micro-steps, one pack per DP rank.

For finished packs, sorting by attention cost and cutting into consecutive runs is optimal: a micro-step waits for its
most expensive pack, and the sum over micro-steps of that largest cost is least when the i-th largest of them is the
(i x dp_size)-th largest pack, which no arrangement can undercut and the sorted one attains. Only other packs can do
better; making them is the work of :mod:`hbp_prep.planning.rebalance`. Cost: one sort.
"""

from dataclasses import dataclass

import numpy as np

from hbp_prep.planning.randomness import generator
from hbp_prep.planning.types import EMPTY_PACK, Int16, Int64, PlanSpec


@dataclass(frozen=True, kw_only=True)
class MicroSteps:
    """U micro-steps over P packs, in no order of training yet.

    Attributes:
        group: int16[U], ascending; inside a group ascending by attention cost (unless in random order).
        offsets: int64[U + 1].
        packs: int64[...]; DP rank d of micro-step u has ``packs[offsets[u] + d]``, a pack id or ``EMPTY_PACK``.
    """

    group: Int16
    offsets: Int64
    packs: Int64

    def __len__(self) -> int:
        return len(self.group)


def form_micro_steps(spec: PlanSpec, group_of_pack: Int16, attention_cost: Int64) -> MicroSteps:
    """Cut the packs of every packing group into micro-steps: alike in attention cost, or at random.

    Where a group's packs are no multiple of its DP size, its *first* micro-step (the cheapest, unless in random order)
    has the empty packs that are missing: there the least is waited for.

    Args:
        spec: ``order`` ``random`` shuffles the packs, any other sorts them by attention cost.
        group_of_pack: int16[P], ascending.
        attention_cost: int64[P], or another key to sort by; equal keys stay in the order of packs.

    Returns:
        Every pack in exactly one micro-step. Which DP rank gets which pack is drawn at random.
    """
    sizes, packs, groups = [np.zeros(1, dtype=np.int64)], [], []
    for group in range(len(spec.groups)):
        dp_size = spec.dp_size(group)
        rng = generator(spec.seed, "micro-steps", group)
        members = np.flatnonzero(group_of_pack == group)
        if spec.order == "random":
            members = rng.permutation(members)
        else:
            members = members[np.argsort(attention_cost[members], kind="stable")]
        filled = np.concatenate([np.full(-len(members) % dp_size, EMPTY_PACK, dtype=np.int64), members])
        packs.append(rng.permuted(filled.reshape(-1, dp_size), axis=1).ravel())
        sizes.append(np.full(len(filled) // dp_size, dp_size, dtype=np.int64))
        groups.append(np.full(len(filled) // dp_size, group, dtype=np.int16))
    return MicroSteps(
        group=np.concatenate(groups), offsets=np.cumsum(np.concatenate(sizes)), packs=np.concatenate(packs)
    )
