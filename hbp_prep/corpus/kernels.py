"""Compiled scanners that find where rows begin and end in a stream of bytes, chunk by chunk.

Both read one chunk (``uint8[n]``), carry what they must know across chunks in ``state`` (``int64``), write the file
offsets of row starts and row ends (exclusive) and the rows' numbers, and return how many starts and ends they wrote. A
row may begin in one chunk and end in a later one, so at most one row is open between calls. Arrays for the results need
``n // 2 + 2`` places: two rows are at least two bytes apart.

Cost: one pass without memory; about 2 GB/s for lines and 1 GB/s for arrays of chat-like JSON on one core.
"""

import numba
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int64 = NDArray[np.int64]

STATE_SIZE = 3
MODE, NUMBER, DEPTH = 0, 1, 2  # places in ``state``

# Modes of `scan_lines`; NUMBER counts line ends seen.
LINE_BLANK = 0
LINE_ROW = 1

# Modes of `scan_array`; NUMBER counts elements begun, DEPTH the brackets open inside the element.
ARRAY_HEAD = 0  # before the opening bracket
ARRAY_BETWEEN = 1
ARRAY_ELEMENT = 2
ARRAY_STRING = 3
ARRAY_ESCAPE = 4
ARRAY_CLOSED = 5
ARRAY_TRAILING = 6  # bytes after the closing bracket: DEPTH holds the offset of the first

_TAB, _NEWLINE, _RETURN, _SPACE, _QUOTE, _COMMA, _BACKSLASH = 9, 10, 13, 32, 34, 44, 92
_OPEN_BRACKET, _CLOSE_BRACKET, _OPEN_BRACE, _CLOSE_BRACE = 91, 93, 123, 125


@numba.njit(cache=True)
def scan_lines(
    chunk: Bytes, base: int, state: Int64, starts: Int64, ends: Int64, numbers: Int64
) -> tuple[int, int]:  # pragma: no cover - compiled
    """Rows are lines with anything but spaces, tabs and carriage returns; a row starts at its first such byte.

    ``base`` is the offset of ``chunk`` in the file. A row's number is its line's, from 0; its end is the newline.
    """
    num_starts = 0
    num_ends = 0
    mode = state[MODE]
    line = state[NUMBER]
    size = chunk.size
    i = 0
    while i < size:
        if mode == LINE_ROW:
            while i < size and chunk[i] != _NEWLINE:
                i += 1
            if i == size:
                break
            ends[num_ends] = base + i
            num_ends += 1
            line += 1
            mode = LINE_BLANK
        else:
            byte = chunk[i]
            if byte == _NEWLINE:
                line += 1
            elif byte not in (_SPACE, _TAB, _RETURN):
                starts[num_starts] = base + i
                numbers[num_starts] = line
                num_starts += 1
                mode = LINE_ROW
        i += 1
    state[MODE] = mode
    state[NUMBER] = line
    return num_starts, num_ends


@numba.njit(cache=True)
def scan_array(
    chunk: Bytes, base: int, state: Int64, starts: Int64, ends: Int64, numbers: Int64
) -> tuple[int, int]:  # pragma: no cover - compiled
    """Rows are the elements of one JSON array; a row ends at the comma or closing bracket that follows it.

    It knows strings, escapes and depth, and nothing else of JSON: what is inside an element is for the parser to judge.
    """
    num_starts = 0
    num_ends = 0
    mode = state[MODE]
    number = state[NUMBER]
    depth = state[DEPTH]
    size = chunk.size
    i = 0
    while i < size:
        byte = chunk[i]
        if mode == ARRAY_STRING:
            while byte != _QUOTE and byte != _BACKSLASH:
                i += 1
                if i == size:
                    break
                byte = chunk[i]
            if i == size:
                break
            mode = ARRAY_ELEMENT if byte == _QUOTE else ARRAY_ESCAPE
        elif mode == ARRAY_ESCAPE:
            mode = ARRAY_STRING
        elif mode == ARRAY_ELEMENT:
            if byte == _QUOTE:
                mode = ARRAY_STRING
            elif byte in (_OPEN_BRACE, _OPEN_BRACKET):
                depth += 1
            elif depth > 0:
                if byte in (_CLOSE_BRACE, _CLOSE_BRACKET):
                    depth -= 1
            elif byte in (_COMMA, _CLOSE_BRACKET):
                ends[num_ends] = base + i
                num_ends += 1
                mode = ARRAY_BETWEEN if byte == _COMMA else ARRAY_CLOSED
        elif mode == ARRAY_TRAILING:
            break
        elif byte in (_SPACE, _NEWLINE, _RETURN, _TAB):
            pass
        elif mode == ARRAY_HEAD:
            mode = ARRAY_BETWEEN
        elif mode == ARRAY_CLOSED:
            mode = ARRAY_TRAILING
            depth = base + i
        elif byte == _CLOSE_BRACKET:
            mode = ARRAY_CLOSED
        elif byte != _COMMA:
            starts[num_starts] = base + i
            numbers[num_starts] = number
            num_starts += 1
            number += 1
            mode = ARRAY_ELEMENT
            continue  # the element's first byte is read again, as its content
        i += 1
    state[MODE] = mode
    state[NUMBER] = number
    state[DEPTH] = depth
    return num_starts, num_ends
