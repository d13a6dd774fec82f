"""Fingerprints: content hashes of inputs and configuration, stable across processes, machines and hash seeds."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

FINGERPRINT_HEX_DIGITS = 32


def fingerprint(value: Mapping[str, Any] | Sequence[Any] | str | int | float | bool | None) -> str:
    """SHA-256 of the canonical JSON of ``value``, cut to 32 hexadecimal digits (128 bits).

    Raises:
        TypeError: something inside ``value`` is not plain JSON data.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_HEX_DIGITS]
