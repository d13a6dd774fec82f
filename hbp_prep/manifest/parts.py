"""Parts of long rows: how samples.arrow names them, and which tokens of the row they hold.

A row that was split is several samples, in order. Each one's ``original_id`` is the row's own with the part's token
range behind it, ``doc-7[0:131072]`` (``[0:131072]`` where a row has no id); ``truncated_from`` is the length of the
whole row. A part may begin with the last token of the part before, as context for its first target.
"""

import re

# Keys of the manifest's ``lost_tokens`` that say that long rows were split, or truncated.
SPLIT, TRUNCATED = "split", "truncated"

_RANGE = re.compile(r"\[(\d{1,18}):(\d{1,18})\]\Z")


def part_name(original_id: str | None, first: int, stop: int) -> str:
    """The ``original_id`` of the part that holds tokens [first, stop) of a row."""
    return f"{original_id or ''}[{first}:{stop}]"


def part_range(name: str | None) -> tuple[int, int] | None:
    """The range that ``name`` ends with, ``None`` if there is none."""
    found = _RANGE.search(name or "")
    return None if found is None else (int(found[1]), int(found[2]))
