"""Where turns begin and end in a rendered text of which it is known where every message lies."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization.template import Span
from hbp_prep.tokenization.turns import TurnShape


@dataclass(frozen=True, slots=True)
class Region:
    """Where a message lies in the rendered text; ``start`` is ``None`` if the template dropped a turn's beginning."""

    is_turn: bool
    start: int | None
    end: int

    @property
    def first(self) -> int:
        return self.end if self.start is None else self.start


def turns_of(messages: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[bool]]:
    """The assistant's messages, and which of them answer a tool."""
    roles = [message["role"] for message in messages]
    answers_tool = [before == "tool" for before, role in pairwise(["", *roles]) if role == "assistant"]
    return [message for message in messages if message["role"] == "assistant"], answers_tool


def locate_turns(
    shape: TurnShape,
    text: str,
    regions: Sequence[Region],
    turns: Sequence[dict[str, Any]],
    answers_tool: Sequence[bool],
) -> list[Span]:
    """Header and stop of every turn, from the template's own text around its region.

    Args:
        regions: Of all messages, in the text's order.
        turns: The assistant's messages, in that order, and whether each answers a tool.

    Raises:
        RowRejected: SPANS_UNPROVEN.
    """
    spans: list[Span] = []
    remaining = iter(turns)
    limits = [following.first for _, following in pairwise(regions)] + [len(text)]
    boundary = 0
    for region, limit in zip(regions, limits, strict=True):
        if region.first < boundary:
            raise unproven("another message lies inside an assistant turn")
        if not region.is_turn:
            boundary = region.end
            continue
        turn = next(remaining)
        start = None
        if answers_tool[len(spans)] and region.start is not None and not turn.get("tool_calls"):
            start = _behind_tool_header(shape, text, boundary, region.start)
        if start is None:
            start = _behind_header(shape, text, boundary, region, turn, f"assistant turn {len(spans)}")
        stop = text.find(shape.stop, region.end, limit)
        if stop < 0:
            raise unproven(f"assistant turn {len(spans)} does not end with {shape.stop!r}")
        boundary = stop + len(shape.stop)
        spans.append((start, boundary))
    return spans


def _behind_tool_header(shape: TurnShape, text: str, output_end: int, content_start: int) -> int | None:
    """Where an answer begins that follows a tool's output directly; ``None`` if anything else lies between them.

    White space at the edges of the output and of the answer lies between as well.
    """
    if shape.tool_header is None:
        return None
    between = text[output_end:content_start]
    before, found, behind = between.partition(shape.tool_header)
    return output_end + len(before) + len(found) if found and not before.strip() and not behind.strip() else None


def _behind_header(shape: TurnShape, text: str, boundary: int, region: Region, turn: dict[str, Any], name: str) -> int:
    """Where a turn begins that the header opens."""
    if region.start is None:
        _check_partly_printed(shape, turn)
    # Up to here the text must be free of a second header or a stop; a marked content may hold either.
    clean_end = region.end if region.start is None or turn.get("tool_calls") else region.start
    header = text.find(shape.header, boundary, clean_end)
    start = header + len(shape.header)
    if header < 0 or start > region.first:
        raise unproven(f"{name} does not begin with the header {shape.header.strip()!r}")
    if text.find(shape.header, header + 1, clean_end) >= 0 or text.find(shape.stop, start, clean_end) >= 0:
        raise unproven(f"{name} has a second header or a stop token in it")
    return start


def _check_partly_printed(shape: TurnShape, turn: dict[str, Any]) -> None:
    """A turn whose beginning is not printed may lack text of its content only, and no text like a turn's edge."""
    content = turn.get("content") or ""
    if not content.strip():
        raise unproven("the beginning of an assistant turn does not show in the rendered text")
    if shape.header in content or shape.stop in content:
        raise unproven("an assistant turn is printed in part, and has a header or a stop token in its text")


def unproven(why: str) -> RowRejected:
    """Why the spans of a row are not proven."""
    return RowRejected(Reason.SPANS_UNPROVEN, why)
