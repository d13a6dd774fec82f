"""Cutting a sequence of sizes into consecutive runs."""

import numpy as np
from numpy.typing import ArrayLike


def cut_runs(sizes: ArrayLike, limit: int) -> list[tuple[int, int]]:
    """Consecutive ``(start, stop)`` ranges, each as long as its sum of ``sizes`` allows.

    No run's sum is above ``limit``, but an item that alone is larger has a run of its own. Depends on nothing else.

    Args:
        sizes: Whole numbers of at least 0.
        limit: At least 1, in the same unit.
    """
    ends = np.cumsum(np.asarray(sizes, np.int64))
    runs = []
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + limit, side="right")), start + 1)
        runs.append((start, stop))
        start = stop
    return runs
