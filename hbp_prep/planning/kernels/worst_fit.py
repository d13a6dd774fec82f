"""Worst fit into bins that exist already: every item goes to the emptiest bin. A heap, O(log bins) per item."""

import numpy as np
from numba import njit

from hbp_prep.planning.kernels.heap import sift_down
from hbp_prep.planning.types import Int64


@njit(cache=True)
def _worst_fit_into(lengths, loads, heap, level, capacity):  # type: ignore[no-untyped-def]
    bin_of_item = np.full(lengths.size, -1, dtype=np.int64)
    emptiness = -loads
    for item in range(lengths.size):
        emptiest = heap[0]
        limit = level if loads[emptiest] > 0 else capacity
        if loads[emptiest] + lengths[item] <= limit:
            bin_of_item[item] = emptiest
            loads[emptiest] += lengths[item]
            emptiness[emptiest] = -loads[emptiest]
            sift_down(heap, heap.size, emptiness, 0)
    return bin_of_item


def worst_fit_into(lengths: Int64, loads: Int64, level: int, capacity: int) -> Int64:
    """Put each item, in the given order, into the emptiest bin, as long as that bin stays at or under ``level``.

    An empty bin takes any item up to ``capacity``. ``loads`` is updated in place.

    Args:
        lengths: int64[n].
        loads: int64[B], what the bins hold already, at least one bin.
        level: To which bins are filled.
        capacity: Of every bin.

    Returns:
        int64[n]: the bin of each item, or -1 where it was not put anywhere.
    """
    heap = np.argsort(loads, kind="stable")  # ascending, so a heap
    return _worst_fit_into(lengths, loads, heap, level, capacity)
