"""Order by length in linear time: counting sort. About 10 ms per 1M items."""

import numpy as np
from numba import njit

from hbp_prep.planning.types import Int32, Int64


@njit(cache=True)
def _longest_first(num_tokens, sequence, longest):  # type: ignore[no-untyped-def]
    place = np.zeros(longest + 2, dtype=np.int64)
    for item in range(num_tokens.size):
        place[longest - num_tokens[item] + 1] += 1
    for length in range(1, place.size):
        place[length] += place[length - 1]
    order = np.empty(num_tokens.size, dtype=np.int64)
    for item in sequence:
        rank = longest - num_tokens[item]
        order[place[rank]] = item
        place[rank] += 1
    return order


def longest_first(num_tokens: Int32, sequence: Int64) -> Int64:
    """Items by descending length; equally long ones in the order of ``sequence``.

    Args:
        num_tokens: int32[N], each at least 0.
        sequence: int64[N], a permutation of 0 .. N - 1.

    Returns:
        int64[N], positions in ``num_tokens``. Memory: 8 bytes per item and per token of the longest.
    """
    return _longest_first(num_tokens, sequence, int(num_tokens.max(initial=0)))
