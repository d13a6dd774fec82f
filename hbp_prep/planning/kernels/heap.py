"""A binary heap of packs, the largest key first. The keys lie in an array of their own, by pack."""

from numba import njit


@njit(cache=True)
def sift_down(heap, size, keys, root):  # type: ignore[no-untyped-def]
    """Mend ``heap[:size]`` after the key of ``heap[root]`` has fallen."""
    moved = heap[root]
    while True:
        child = 2 * root + 1
        if child >= size:
            break
        if child + 1 < size and keys[heap[child + 1]] > keys[heap[child]]:
            child += 1
        if keys[heap[child]] <= keys[moved]:
            break
        heap[root] = heap[child]
        root = child
    heap[root] = moved


@njit(cache=True)
def push(heap, size, keys, pack):  # type: ignore[no-untyped-def]
    """Add ``pack`` to ``heap[:size]``; it is ``heap[:size + 1]`` then."""
    place = size
    while place:
        parent = (place - 1) >> 1
        if keys[heap[parent]] >= keys[pack]:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = pack


@njit(cache=True)
def pop(heap, size, keys):  # type: ignore[no-untyped-def]
    """Take the pack with the largest key out of ``heap[:size]``; it is ``heap[:size - 1]`` then."""
    largest = heap[0]
    heap[0] = heap[size - 1]
    sift_down(heap, size - 1, keys, 0)
    return largest
