"""FFS: first fit on shuffled items."""

import numpy as np

from hbp_prep.planning.kernels.first_fit import first_fit
from hbp_prep.planning.types import Int64


def first_fit_shuffled(lengths: Int64, capacity: int, rng: np.random.Generator) -> Int64:
    """Bin of each item, int64[n]; see :func:`hbp_prep.planning.kernels.first_fit.first_fit`."""
    order = rng.permutation(len(lengths))
    bins = np.empty(len(lengths), dtype=np.int64)
    bins[order] = first_fit(lengths[order], capacity)
    return bins
