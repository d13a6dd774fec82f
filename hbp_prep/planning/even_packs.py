"""Pack samples into an exact number of packs, evenly full.

The strategy is run with lower and lower capacities until it needs exactly the packs there are: then every pack is about
as full as every other, and what is left free is spread over all of them. Cost: about a dozen runs of the strategy.
"""

from collections.abc import Callable

import numpy as np

from hbp_prep.planning.kernels.feed_empty import feed_empty
from hbp_prep.planning.types import Int64

EVENNESS = 2048
"""The capacity is searched to within ``capacity // EVENNESS`` (8 tokens of 16K)."""


def pack_evenly(
    lengths: Int64, num_packs: int, capacity: int, pack: Callable[[Int64, int], Int64], widest: Int64
) -> Int64:
    """Spread samples over exactly ``num_packs`` packs.

    Args:
        lengths: int64[n], each 1 .. capacity.
        num_packs: At least the packs of ``widest``.
        capacity: Tokens that a pack may hold.
        pack: ``pack(lengths, capacity) -> int64[n]``, bins numbered densely.
        widest: int64[n], a packing at the full capacity, into at most ``num_packs`` packs.

    Returns:
        int64[n], each 0 .. num_packs - 1. No pack is empty where there are at least ``num_packs`` samples.
    """
    best, high = widest, capacity
    low = max(-(-int(lengths.sum()) // num_packs), int(lengths.max()))
    while high - low > capacity // EVENNESS:
        middle = (low + high) // 2
        packed = pack(lengths, middle)
        if packed.max() < num_packs:
            best, high = packed, middle
        else:
            low = middle + 1
    bins = best.copy()
    loads = np.bincount(bins, weights=lengths, minlength=num_packs).astype(np.int64)
    if not loads.all():
        feed_empty(bins, lengths, loads, -(-int(lengths.sum()) // num_packs), capacity)
    return bins
