"""Invisible marks: Unicode noncharacters put into text before it is rendered and taken out again afterwards.

U+FDD0 to U+FDEF are promised never to be assigned, so text has them only by accident; a row that does gets others.
"""

import re
from collections.abc import Iterator
from typing import Any

from hbp_prep.reasons import Reason, RowRejected

_NONCHARACTERS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))


def strings_in(value: Any) -> Iterator[str]:
    """Every string anywhere in ``value``, however deep, keys of dictionaries too."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            pending += item


def free_marks(row: Any, count: int) -> tuple[str, ...]:
    """``count`` noncharacters that no string of ``row`` contains.

    Raises:
        RowRejected: SPANS_UNPROVEN, the row has nearly all of them.
    """
    texts = [text for text in strings_in(row) if not text.isascii()]
    free = [mark for mark in _NONCHARACTERS if not any(mark in text for text in texts)]
    if len(free) < count:
        raise RowRejected(Reason.SPANS_UNPROVEN, "the row uses up the Unicode noncharacters that mark turns")
    return tuple(free[:count])


def take_out(text: str, marks: tuple[str, ...]) -> tuple[str, list[tuple[str, int]]]:
    """``text`` without the marks, and every mark in order with its position in the text that is left."""
    pieces = re.split(f"([{''.join(marks)}])", text)
    found: list[tuple[str, int]] = []
    position = 0
    for plain, mark in zip(pieces[0::2], pieces[1::2], strict=False):
        position += len(plain)
        found.append((mark, position))
    return "".join(pieces[0::2]), found
