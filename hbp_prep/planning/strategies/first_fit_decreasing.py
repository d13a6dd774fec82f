"""FFD: first fit, longest item first (equal lengths by position). No randomness: like lengths end up together."""

import numpy as np

from hbp_prep.planning.kernels.first_fit import first_fit
from hbp_prep.planning.types import Int64


def first_fit_decreasing(lengths: Int64, capacity: int, rng: np.random.Generator) -> Int64:
    """Bin of each item, int64[n]; see :func:`hbp_prep.planning.kernels.first_fit.first_fit`."""
    del rng
    order = np.argsort(-lengths, kind="stable")
    bins = np.empty(len(lengths), dtype=np.int64)
    bins[order] = first_fit(lengths[order], capacity)
    return bins
