"""The fewest packs for a group's own samples: best fit decreasing, solved exactly where that may save a micro-step.

A longer group's extra micro-step costs communication, so it is worth the effort.
"""

import numpy as np

from hbp_prep.planning.kernels.best_fit import best_fit
from hbp_prep.planning.solvers.exact_packs import pack_exactly
from hbp_prep.planning.types import Int64


def fewest_packs(lengths: Int64, capacity: int, dp_size: int) -> int:
    """Lower bound, in whole micro-steps: packs for all tokens, and one for every sample over half the capacity."""
    least = max(-(-int(lengths.sum()) // capacity), int((2 * lengths > capacity).sum()))
    return -(-least // dp_size) * dp_size


def pack_tightly(lengths: Int64, capacity: int, dp_size: int, seed: int) -> Int64:
    """Pack samples into few packs of ``capacity`` tokens.

    Args:
        lengths: int64[n], each 1 .. capacity.
        capacity: Tokens that a pack may hold.
        dp_size: Packs of a micro-step; fewer packs than whole micro-steps are not sought.
        seed: Of the solver.

    Returns:
        int64[n], the pack of each sample, numbered densely.
    """
    longest_first = np.argsort(-lengths, kind="stable")
    bins = np.empty(len(lengths), dtype=np.int64)
    bins[longest_first] = best_fit(lengths[longest_first], capacity)
    least = fewest_packs(lengths, capacity, dp_size)
    exact = pack_exactly(lengths, least, capacity, seed) if bins.max() >= least else None
    return bins if exact is None else np.unique(exact, return_inverse=True)[1].astype(np.int64)
