"""Near-miss suggestions for messages: "unknown strategy 'bdf'; did you mean 'bfd'?"."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` where a known name is near, else ``"; known: a, b, c"``."""
    names = sorted(known)
    near = get_close_matches(wrong, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""
