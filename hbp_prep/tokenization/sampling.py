"""Which rows are checked against a slower reference while a corpus is tokenised: a matter of their content alone."""

import zlib

_ONE_IN = 256
_END_CHARS = 256


def is_sampled(text: str) -> bool:
    """Whether this row is one of them, by its length and its end (beginnings are alike in many corpora)."""
    return zlib.crc32(text[-_END_CHARS:].encode("utf-8", "replace"), len(text) & 0xFFFFFFFF) % _ONE_IN == 0
