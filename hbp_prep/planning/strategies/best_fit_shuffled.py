"""BFS: best fit on shuffled items. As mixed as a random draw, and nearly as tight as the decreasing orders."""

import numpy as np

from hbp_prep.planning.kernels.best_fit import best_fit
from hbp_prep.planning.types import Int64


def best_fit_shuffled(lengths: Int64, capacity: int, rng: np.random.Generator) -> Int64:
    """Bin of each item, int64[n]; see :func:`hbp_prep.planning.kernels.best_fit.best_fit`."""
    order = rng.permutation(len(lengths))
    bins = np.empty(len(lengths), dtype=np.int64)
    bins[order] = best_fit(lengths[order], capacity)
    return bins
