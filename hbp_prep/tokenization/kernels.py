"""The inner loop of encoding, compiled: 2 ns a token."""

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def mark_targets(
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    token_bytes: NDArray[np.uint16],
    is_special: NDArray[np.bool_],
    span_offsets: NDArray[np.int64],
    spans: NDArray[np.int64],
    mask: NDArray[np.bool_],
    num_bytes: NDArray[np.int64],
    num_specials: NDArray[np.int64],
) -> None:  # pragma: no cover - compiled
    """Walk through the tokens of N texts: mark those that overlap a loss span, add up bytes, count special tokens.

    Args:
        ids: int32[tokens]; text i has ``ids[offsets[i]:offsets[i + 1]]``.
        token_bytes, is_special: uint16[vocabulary], bool[vocabulary].
        spans: int64[all spans, 2], [start, end) in bytes from the beginning of their text, ascending, disjoint; text i
            has ``spans[span_offsets[i]:span_offsets[i + 1]]``.
        mask: bool[tokens], written. The first token of a text is never a target.
        num_bytes, num_specials: int64[N], written.
    """
    for text in range(len(offsets) - 1):
        position, specials = 0, 0
        span, last_span = span_offsets[text], span_offsets[text + 1]
        for at in range(offsets[text], offsets[text + 1]):
            begin = position
            position += token_bytes[ids[at]]
            specials += is_special[ids[at]]
            while span < last_span and spans[span, 1] <= begin:
                span += 1
            mask[at] = span < last_span and spans[span, 0] < position and at > offsets[text]
        num_bytes[text] = position
        num_specials[text] = specials
