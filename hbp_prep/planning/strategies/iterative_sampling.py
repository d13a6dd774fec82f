"""ISF: Iterative Sampling and Filtering (OmniBal, arXiv 2407.20761).

Shuffle the pool and fill bins one after the other; keep the bins that are nearly full and put the rest back; repeat,
and after the last round keep everything. A round costs one shuffle of what is left: about 8 passes over all items.
"""

import numpy as np

from hbp_prep.planning.kernels.next_fit import next_fit
from hbp_prep.planning.types import Int64

NUM_ROUNDS = 50
TOLERANCE = 128
"""A bin counts as full from ``capacity - capacity // TOLERANCE`` (128 tokens of 16K)."""


def iterative_sampling(lengths: Int64, capacity: int, rng: np.random.Generator) -> Int64:
    """Bin of each item, int64[n]."""
    bins = np.empty(len(lengths), dtype=np.int64)
    pool = np.arange(len(lengths), dtype=np.int64)
    num_bins = 0
    full = capacity - capacity // TOLERANCE
    for round_ in range(NUM_ROUNDS):
        if not len(pool):
            break
        pool = rng.permutation(pool)
        drawn = next_fit(lengths[pool], capacity)
        loads = np.bincount(drawn, weights=lengths[pool]).astype(np.int64)
        kept = loads >= full if round_ < NUM_ROUNDS - 1 else np.ones(len(loads), dtype=bool)
        new_number = num_bins + np.cumsum(kept) - 1
        keep_item = kept[drawn]
        bins[pool[keep_item]] = new_number[drawn[keep_item]]
        pool = pool[~keep_item]
        num_bins += int(kept.sum())
    return bins
