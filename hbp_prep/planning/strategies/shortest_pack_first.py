"""SPFHP: shortest pack first on a histogram of lengths (Krell et al., arXiv 2107.02027), as a list of packs by room.

Lengths come longest first; each goes into the pack with the most room left, if it fits there, else opens a pack. Packs
end up alike in tokens rather than as few as can be. O(n log n) with a heap.
"""

import heapq

import numpy as np

from hbp_prep.planning.types import Int64


def shortest_pack_first(lengths: Int64, capacity: int, rng: np.random.Generator) -> Int64:
    """Bin of each item, int64[n]; no randomness."""
    del rng
    bins = np.empty(len(lengths), dtype=np.int64)
    heap: list[tuple[int, int]] = []  # (tokens, bin), the emptiest first
    for item in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[item])
        if heap and heap[0][0] + length <= capacity:
            load, chosen = heap[0]
            heapq.heapreplace(heap, (load + length, chosen))
        else:
            chosen = len(heap)
            heapq.heappush(heap, (length, chosen))
        bins[item] = chosen
    return bins
