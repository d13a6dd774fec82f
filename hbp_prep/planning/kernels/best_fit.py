"""Best fit in O(1) per item: bins in buckets by residual capacity, and a two-level bitset of the non-empty buckets.

The bucket of the smallest residual that still holds an item is the first set bit at or after the item's length. Level
0 has one bit per residual, level 1 one bit per 64-bit word of level 0: for a capacity of 1M tokens 16,384 words and
256, so a search reads a few words. About 0.1 s per 1M items, 17 bytes per unit of capacity.
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
def _put(residual, bin_, newest_bin, older_bin, words, summary):  # type: ignore[no-untyped-def]
    older_bin[bin_] = newest_bin[residual]
    newest_bin[residual] = bin_
    index = residual >> 6
    words[index] |= _ONE << np.uint64(residual & 63)
    summary[index >> 6] |= _ONE << np.uint64(index & 63)


@njit(cache=True)
def _take(residual, newest_bin, older_bin, words, summary):  # type: ignore[no-untyped-def]
    taken = newest_bin[residual]
    newest_bin[residual] = older_bin[taken]
    if newest_bin[residual] < 0:
        index = residual >> 6
        words[index] &= ~(_ONE << np.uint64(residual & 63))
        if not words[index]:
            summary[index >> 6] &= ~(_ONE << np.uint64(index & 63))
    return taken


@njit(cache=True)
def _best_fit(lengths, rooms, capacity, max_new_bins):  # type: ignore[no-untyped-def]
    bin_of_item = np.full(lengths.size, -1, dtype=np.int64)
    newest_bin = np.full(capacity + 1, -1, dtype=np.int64)  # by residual: the bin that last came to it
    older_bin = np.empty(rooms.size + max_new_bins, dtype=np.int64)  # by bin: the next one of the same residual
    words = np.zeros((capacity >> 6) + 1, dtype=np.uint64)
    summary = np.zeros((words.size >> 6) + 1, dtype=np.uint64)
    num_bins = rooms.size
    for bin_ in range(num_bins):
        _put(rooms[bin_], bin_, newest_bin, older_bin, words, summary)
    for item in range(lengths.size):
        residual = _next_set(words, summary, lengths[item]) if lengths[item] <= capacity else -1
        if residual >= 0:
            chosen = _take(residual, newest_bin, older_bin, words, summary)
        elif num_bins < older_bin.size:
            chosen = num_bins
            residual = capacity
            num_bins += 1
        else:
            continue
        bin_of_item[item] = chosen
        _put(residual - lengths[item], chosen, newest_bin, older_bin, words, summary)
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
    return _best_fit(lengths, np.empty(0, dtype=np.int64), capacity, max_bins(lengths, capacity))


def best_fit_into(lengths: Int64, rooms: Int64) -> Int64:
    """Put each item, in the given order, into the existing bin with the least room that still holds it.

    Args:
        lengths: int64[n], each at least 1.
        rooms: int64[B], free room of each bin, not negative; at least one bin.

    Returns:
        int64[n]: the bin of each item, or -1 where no bin holds it.
    """
    return _best_fit(lengths, rooms, int(rooms.max()), 0)


def max_bins(lengths: Int64, capacity: int) -> int:
    """Most bins that any-fit or next-fit packing can open: two bins in succession hold more than one capacity."""
    return min(len(lengths), 2 * (int(lengths.sum()) // capacity + 1))
