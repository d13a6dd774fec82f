"""How many packs every packing group gets, and how full they are: what is decided before a sample is placed."""

from dataclasses import dataclass

import numpy as np

from hbp_prep.planning.types import Int64, PlanSpec


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Room for every token, in whole micro-steps.

    Attributes:
        num_packs: int64[G], multiples of the DP sizes; 0 for a packing group that is not used.
        levels: int64[G], tokens that a pack is to hold; all groups equally full where their own samples allow it.
        longest: int64[G], the longest sample that belongs to each group; longer ones go to a longer group.
    """

    num_packs: Int64
    levels: Int64
    longest: Int64

    def group_starts(self) -> Int64:
        """int64[G + 1]; packs are numbered by packing group, group g has ``starts[g] .. starts[g + 1] - 1``."""
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.num_packs)])


def make_layout(spec: PlanSpec, lengths: Int64, longest: Int64, fewest: Int64, extra: int) -> Layout:
    """The layout with the fewest micro-steps, longer packing groups first, and then as many more as are asked for.

    Args:
        spec: Packing groups and world size.
        lengths: int64[N], descending.
        longest: int64[G], ascending, each at most its group's packing length.
        fewest: int64[G], packs that hold the own samples of each group; that of the shortest is not looked at.
        extra: Micro-steps of every longer group beside the fewest.
    """
    capacity = np.array([group.pack_length for group in spec.groups], dtype=np.int64)
    dp_size = np.array([spec.dp_size(group) for group in range(len(spec.groups))], dtype=np.int64)
    bounds = own_slices(lengths, longest)
    num_packs = (-(-fewest // dp_size) + extra) * dp_size
    num_packs[0] = 0
    left = int(lengths.sum()) - int((num_packs * capacity).sum())
    num_packs[0] = max(0, -(-left // int(dp_size[0] * capacity[0]))) * dp_size[0]
    return Layout(num_packs=num_packs, levels=_levels(lengths, bounds, num_packs, capacity), longest=longest)


def own_slices(lengths: Int64, longest: Int64) -> Int64:
    """Where the samples of each group stand: ``lengths[slices[g + 1]:slices[g]]`` are those of group g.

    Args:
        lengths: int64[N], descending.
        longest: int64[G], ascending.

    Returns:
        int64[G + 1].
    """
    shorter = np.concatenate([np.zeros(1, dtype=np.int64), longest])
    return len(lengths) - np.searchsorted(lengths[::-1], shorter, side="right").astype(np.int64)


def _levels(lengths: Int64, bounds: Int64, num_packs: Int64, capacity: Int64) -> Int64:
    levels = np.zeros(len(num_packs), dtype=np.int64)
    tokens = int(lengths.sum())
    room = int((num_packs * capacity).sum())
    for group in reversed(range(len(num_packs))):
        if not num_packs[group]:
            continue
        own = int(lengths[bounds[group + 1] : bounds[group]].sum())
        even = -(-tokens * int(capacity[group]) // room)
        levels[group] = min(int(capacity[group]), max(even, -(-own // int(num_packs[group]))))
        tokens = max(0, tokens - int(levels[group] * num_packs[group]))
        room -= int(num_packs[group] * capacity[group])
    return levels
