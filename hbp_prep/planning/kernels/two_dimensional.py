"""Packing towards two targets at once: tokens and attention cost. About 0.2 s per 1M items.

The mean sample length that a pack still needs, (target - cost) / (level - load), says whether it wants long samples or
short ones: tokens weigh in a sum of len^2 by the length of their sample. Items come longest first, each goes to the
pack that needs the longest; so the needs stay alike, and sink together with the lengths that are left. A heap holds
the packs by need; those without room for the present item wait in a second heap, by room, until items are short enough.
"""

import numpy as np
from numba import njit

from hbp_prep.planning.kernels.heap import pop, push, sift_down
from hbp_prep.planning.types import Float64, Int64


@njit(cache=True)
def _pack_towards(lengths, loads, costs, levels, targets, only_needed):  # type: ignore[no-untyped-def]
    pack_of_item = np.full(lengths.size, -1, dtype=np.int64)
    rooms = levels - loads
    needs = np.full(loads.size, -np.inf)
    for pack in range(loads.size):
        if rooms[pack] > 0:
            needs[pack] = (targets[pack] - costs[pack]) / rooms[pack]
    ready = np.argsort(-needs, kind="mergesort")
    waiting = np.empty(loads.size, dtype=np.int64)
    num_ready, num_waiting = loads.size, 0
    for item in range(lengths.size):
        length = lengths[item]
        while num_waiting and rooms[waiting[0]] >= length:
            push(ready, num_ready, needs, pop(waiting, num_waiting, rooms))
            num_waiting -= 1
            num_ready += 1
        while num_ready and rooms[ready[0]] < length:
            push(waiting, num_waiting, rooms, pop(ready, num_ready, needs))
            num_ready -= 1
            num_waiting += 1
        if not num_ready:
            continue
        pack = ready[0]
        if only_needed and needs[pack] < length:
            continue
        pack_of_item[item] = pack
        loads[pack] += length
        costs[pack] += length * length
        rooms[pack] -= length
        grown = needs[pack]
        needs[pack] = (targets[pack] - costs[pack]) / rooms[pack] if rooms[pack] > 0 else -np.inf
        if needs[pack] < grown:
            sift_down(ready, num_ready, needs, 0)
    return pack_of_item


def pack_towards(
    lengths: Int64, loads: Int64, costs: Int64, levels: Int64, targets: Float64, *, only_needed: bool = False
) -> Int64:
    """Put each item, longest first, into the pack that needs the longest items and has room.

    Args:
        lengths: int64[n], descending, each at least 1.
        loads: int64[P], tokens that the packs hold already; updated.
        costs: int64[P], sums of len^2 that they hold already; updated.
        levels: int64[P], tokens up to which each pack is filled.
        targets: float64[P], the attention cost that each pack should have when it is full.
        only_needed: Leave out items that are longer than what the neediest pack needs.

    Returns:
        int64[n], the pack of each item, or -1 where it was left out or no pack had room.
    """
    return _pack_towards(lengths, loads, costs, levels, targets, only_needed)
