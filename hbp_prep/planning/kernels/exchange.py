"""Gather free room that lies scattered: two packs exchange items that differ by what one of them has free."""

import numpy as np
from numba import njit

from hbp_prep.planning.types import Int64

MAX_VISITS = 50_000_000
"""Items and lengths that are looked at before the search is given up. About 0.1 s."""


@njit(cache=True)
def _starts_by_length(lengths):  # type: ignore[no-untyped-def]
    """``starts[x]``: the first item that is at most x long."""
    starts = np.full(lengths[0] + 2, lengths.size, dtype=np.int64)
    length = lengths[0]
    starts[length:] = 0
    for item in range(lengths.size):
        while length > lengths[item]:
            length -= 1
            starts[length] = item
    return starts


@njit(cache=True)
def _shorter(lengths, pack_of_item, rooms, starts, here, least, most):  # type: ignore[no-untyped-def]
    """An item that is ``least`` .. ``most`` shorter than item ``here``, its pack has the room: (item, visits)."""
    visits = 0
    for gain in range(least, min(most, lengths[here] - 1) + 1):
        visits += 1
        length = lengths[here] - gain
        last = starts[length - 1] if length > 1 else lengths.size
        for item in range(starts[length], last):
            visits += 1
            pack = pack_of_item[item]
            if pack >= 0 and rooms[pack] >= gain and pack != pack_of_item[here]:
                return item, visits
    return -1, visits


@njit(cache=True)
def _gather_room(lengths, pack_of_item, rooms, max_visits):  # type: ignore[no-untyped-def]
    starts = _starts_by_length(lengths)
    missing = 0
    for item in range(lengths.size):
        if pack_of_item[item] < 0:
            missing += lengths[item]
    if rooms.sum() < missing:
        return False
    visits = 0
    here = 0
    for item in range(lengths.size):
        if pack_of_item[item] >= 0:
            continue
        wanted = lengths[item]
        most = rooms.max()
        for _ in range(lengths.size):  # a whole round: nothing changes until an exchange is found
            if visits >= max_visits:
                return False
            here = (here + 1) % lengths.size
            visits += 1
            pack = pack_of_item[here]
            if pack < 0 or 2 * rooms[pack] < wanted:
                continue
            if rooms[pack] < wanted:
                least = wanted - rooms[pack]
                other, looked_at = _shorter(lengths, pack_of_item, rooms, starts, here, least, most)
                visits += looked_at
                if other < 0:
                    continue
                gain = lengths[here] - lengths[other]
                rooms[pack] += gain
                rooms[pack_of_item[other]] -= gain
                pack_of_item[here] = pack_of_item[other]
                pack_of_item[other] = pack
            pack_of_item[item] = pack
            rooms[pack] -= wanted
            break
        if pack_of_item[item] < 0:
            return False
    return True


def gather_room(lengths: Int64, pack_of_item: Int64, rooms: Int64) -> bool:
    """Place every item that has no pack, by exchanges of two other items that gather the room for it in one pack.

    Args:
        lengths: int64[n], descending, each at least 1; at least one item.
        pack_of_item: int64[n], -1 where an item has none; updated.
        rooms: int64[P], free room of every pack, not negative; updated.

    Returns:
        Whether every item has a pack now.
    """
    return bool(_gather_room(lengths, pack_of_item, rooms, MAX_VISITS))
