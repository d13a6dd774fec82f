"""Length limits: what becomes of a conversation that is longer than the longest packing group.

Cutting comes after the loss masks were made, so ids and mask are cut at the same place. ``split`` makes consecutive
samples of one conversation. Each ends behind the last assistant turn that it has room for, or, where not even one turn
ends in it, at the limit. Text that is no target and does not fit into the part of the answer behind it is left out: a
question longer than a pack loses its beginning, and the answer sees as much of its end as there is room for. A part
whose first token would be a target begins one token earlier, with that token as mere context (the first token of a
sample is never a target), so that no target is lost. Cost: nothing for rows that fit; for others one pass over their
masks.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hbp_prep.errors import ConfigError
from hbp_prep.manifest.parts import SPLIT, TRUNCATED
from hbp_prep.suggest import did_you_mean

OVER_LENGTH = ("drop", "truncate", "raise", "split")
_CUT_BY = {"truncate": TRUNCATED, "split": SPLIT}


@dataclass(frozen=True, kw_only=True)
class LengthPolicy:
    """Which lengths are samples.

    Attributes:
        max_tokens: The longest sample.
        over_length: ``drop`` (rejected and listed), ``truncate``, ``raise`` or ``split``.
        min_tokens: The shortest sample.
    """

    max_tokens: int
    over_length: str
    min_tokens: int = 1

    def __post_init__(self) -> None:
        if self.over_length not in OVER_LENGTH:
            raise ConfigError(
                f"over_length: {self.over_length!r} is not known{did_you_mean(self.over_length, OVER_LENGTH)}"
            )
        if self.over_length == "split" and self.max_tokens < 2:
            raise ConfigError("over_length: split needs a packing length of at least 2 tokens")
        if not 1 <= self.min_tokens <= self.max_tokens:
            raise ConfigError(
                f"min_tokens is {self.min_tokens}; it must be from 1 to the limit of {self.max_tokens} tokens"
            )

    @property
    def cut_key(self) -> str | None:
        """Under which the tokens are counted that this policy cuts from samples; ``None`` if it does not cut."""
        return _CUT_BY.get(self.over_length)


def split_row(loss_mask: NDArray[np.bool_], max_tokens: int) -> list[tuple[int, int]]:
    """Token ranges [first, stop) of a conversation's parts, in order; all targets are in them, and each has one.

    Args:
        loss_mask: bool[n]; the first is false.
        max_tokens: At least 2.
    """
    num_tokens = len(loss_mask)
    edges = np.flatnonzero(np.diff(loss_mask.astype(np.int8), append=0)) + 1
    turn_starts, turn_ends = edges[0::2], edges[1::2]
    parts = []
    first = 0
    while (turn := int(np.searchsorted(turn_ends, first + 1, "right"))) < len(turn_ends):
        first = _with_context(first, max(int(turn_starts[turn]), first + 1), int(turn_ends[turn]), max_tokens)
        if num_tokens - first <= max_tokens:
            parts.append((first, num_tokens))
            break
        limit = first + max_tokens
        last = int(np.searchsorted(turn_ends, limit, "right")) - 1
        stop = int(turn_ends[last]) if last >= turn else limit
        parts.append((first, stop))
        first = stop - 1 if stop < num_tokens and loss_mask[stop] else stop
    return parts


def _with_context(first: int, turn_start: int, turn_end: int, max_tokens: int) -> int:
    """Where a part begins, not before ``first``, that is to hold the turn with as much as possible in front of it.

    Of a turn that is longer than a part, the beginning has half a part of context.
    """
    fits = turn_end - turn_start < max_tokens
    return max(first, turn_end - max_tokens if fits else turn_start - max_tokens // 2)


def num_covered(parts: Iterable[tuple[int, int]]) -> int:
    """Tokens in at least one of the ranges [first, stop), which are in order."""
    covered, end = 0, 0
    for first, stop in parts:
        covered += stop - max(first, end)
        end = stop
    return covered
