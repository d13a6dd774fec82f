"""Random: shuffled items, each bin filled until the next item does not fit."""

import numpy as np

from hbp_prep.planning.kernels.next_fit import next_fit
from hbp_prep.planning.types import Int64


def random_fill(lengths: Int64, capacity: int, rng: np.random.Generator) -> Int64:
    """Bin of each item, int64[n]; see :func:`hbp_prep.planning.kernels.next_fit.next_fit`."""
    order = rng.permutation(len(lengths))
    bins = np.empty(len(lengths), dtype=np.int64)
    bins[order] = next_fit(lengths[order], capacity)
    return bins
