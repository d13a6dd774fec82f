"""Give empty bins their share: items move from the fullest bins, one from each in turn. O(items)."""

import numpy as np
from numba import njit

from hbp_prep.planning.types import Int64


@njit(cache=True)
def _feed_empty(bin_of_item, by_bin, starts, counts, donors, lengths, loads, level, capacity):  # type: ignore[no-untyped-def]
    num_donors = 0
    while num_donors < donors.size and loads[donors[num_donors]] > 0:
        num_donors += 1
    turn = 0
    for target in (1, level):  # first one item for every empty bin, then up to the level
        for empty in donors[num_donors:]:
            refusals = 0
            while loads[empty] < target and refusals < num_donors:
                donor = donors[turn]
                turn = (turn + 1) % num_donors
                refusals += 1
                if counts[donor] < 2:
                    continue
                limit = level if loads[empty] > 0 else capacity
                item = by_bin[starts[donor]]  # a bin's items are given away in the order in which they came
                if loads[empty] + lengths[item] > limit:
                    continue
                starts[donor] += 1
                counts[donor] -= 1
                bin_of_item[item] = empty
                loads[donor] -= lengths[item]
                loads[empty] += lengths[item]
                refusals = 0


def feed_empty(bin_of_item: Int64, lengths: Int64, loads: Int64, level: int, capacity: int) -> None:
    """Move items into the empty bins until each holds about ``level``; no bin is emptied. In place.

    Where there are at least as many items as bins, no bin stays empty.

    Args:
        bin_of_item: int64[n], changed.
        lengths: int64[n].
        loads: int64[B], what each bin holds; changed.
        level: To which empty bins are filled.
        capacity: Of every bin.
    """
    by_bin = np.argsort(bin_of_item, kind="stable")
    donors = np.argsort(-loads, kind="stable")
    counts = np.bincount(bin_of_item, minlength=len(loads))
    _feed_empty(bin_of_item, by_bin, np.cumsum(counts) - counts, counts, donors, lengths, loads, level, capacity)
