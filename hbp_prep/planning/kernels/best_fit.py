"""Best fit in O(1) per item: bins in buckets by residual capacity, and a two-level bitset of the non-empty buckets.

The bucket of the smallest residual that still holds an item is the first set bit at or after the item's length. Level
0 has one bit per residual, level 1 one bit per 64-bit word of level 0: for a capacity of 1M tokens 16,384 words and 256,
so a search reads a few words. About 0.1 s per 1M items, 17 bytes per unit of capacity.
"""

import numpy as np
from numba import njit

from hbp_prep.planning.types import Int64

# Position of the lowest set bit of x: _BIT_POSITION[((x & -x) * _DE_BRUIJN) >> 58].
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_POSITION = np.zeros(64, dtype=np.int64)
for _bit in range(64):
    _BIT_POSITION[((0x03F79D71B4CB0A89 << _bit) & (2**64 - 1)) >> 58] = _bit

_ONE = np.uint64(1)
_ALL_BITS = np.uint64(2**64 - 1)


@njit(cache=True)
def _lowest_bit(word):  # type: ignore[no-untyped-def]
    return _BIT_POSITION[np.int64(((word & (~word + _ONE)) * _DE_BRUIJN) >> np.uint64(58))]


@njit(cache=True)
def _next_set(words, summary, position):  # type: ignore[no-untyped-def]
    """The first set bit at or after ``position``, or -1."""
    index = position >> 6
    word = words[index] & (_ALL_BITS << np.uint64(position & 63))
    if word:
        return (index << 6) + _lowest_bit(word)
    index += 1
    if index >= words.size:
        return -1
    top = index >> 6
    word = summary[top] & (_ALL_BITS << np.uint64(index & 63))
    while not word:
        top += 1
        if top == summary.size:
            return -1
        word = summary[top]
    index = (top << 6) + _lowest_bit(word)
    return (index << 6) + _lowest_bit(words[index])


@njit(cache=True)
def _best_fit(lengths, capacity, max_bins):  # type: ignore[no-untyped-def]
    bin_of_item = np.empty(lengths.size, dtype=np.int64)
    newest_bin = np.full(capacity + 1, -1, dtype=np.int64)  # by residual: the bin that last came to it
    older_bin = np.empty(max_bins, dtype=np.int64)  # by bin: the next one of the same residual
    words = np.zeros((capacity >> 6) + 1, dtype=np.uint64)
    summary = np.zeros((words.size >> 6) + 1, dtype=np.uint64)
    num_bins = 0
    for item in range(lengths.size):
        length = lengths[item]
        residual = _next_set(words, summary, length)
        if residual < 0:
            chosen = num_bins
            num_bins += 1
            residual = capacity
        else:
            chosen = newest_bin[residual]
            newest_bin[residual] = older_bin[chosen]
            if newest_bin[residual] < 0:
                index = residual >> 6
                words[index] &= ~(_ONE << np.uint64(residual & 63))
                if not words[index]:
                    summary[index >> 6] &= ~(_ONE << np.uint64(index & 63))
        bin_of_item[item] = chosen
        residual -= length
        older_bin[chosen] = newest_bin[residual]
        newest_bin[residual] = chosen
        index = residual >> 6
        words[index] |= _ONE << np.uint64(residual & 63)
        summary[index >> 6] |= _ONE << np.uint64(index & 63)
    return bin_of_item


def best_fit(lengths: Int64, capacity: int) -> Int64:
    """Put each item, in the given order, into the fullest bin that still holds it; open a bin where none does.

    Among equally full bins the one that came to that residual last is taken.

    Args:
        lengths: int64[n], each 1 .. capacity.
        capacity: Of every bin.

    Returns:
        int64[n]: the bin of each item, numbered in the order of opening.
    """
    return _best_fit(lengths, capacity, max_bins(lengths, capacity))


def max_bins(lengths: Int64, capacity: int) -> int:
    """Most bins that an any-fit or next-fit packing can open: any two bins in succession hold more than one capacity."""
    return min(len(lengths), 2 * (int(lengths.sum()) // capacity + 1))
