"""The ledger: which stages of a run are complete, and what exactly they were made from.

``.work/ledger.json`` holds, per stage, the flat inputs (key -> plain value) that the stage's output depends on. A stage
is current when its inputs are equal; when they are not, the difference says why it is done again.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hbp_prep import files
from hbp_prep.errors import ManifestError

LEDGER_VERSION = 1
_MOST_REASONS_SHOWN = 3

Inputs = Mapping[str, Any]


class Ledger:
    """The ledger of one output folder; every change is on disk when the call returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stages: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._stages = _read(path)

    def is_current(self, stage: str, inputs: Inputs) -> bool:
        """Whether ``stage`` was completed from exactly these inputs."""
        return self._stages.get(stage) == _plain(inputs)

    def why_not_current(self, stage: str, inputs: Inputs) -> str:
        """What has changed since ``stage`` was completed, e.g. ``packing.strategy: 'bfs' -> 'isf'``."""
        if stage not in self._stages:
            return "not done before"
        old, new = self._stages[stage], _plain(inputs)
        changes = [
            f"{key}: {_shown(old, key)} -> {_shown(new, key)}"
            for key in sorted(old.keys() | new.keys())
            if old.get(key, ...) != new.get(key, ...)
        ]
        more = len(changes) - _MOST_REASONS_SHOWN
        return "; ".join(changes[:_MOST_REASONS_SHOWN]) + (f"; and {more} more" if more > 0 else "")

    def begin(self, stage: str) -> None:
        """``stage`` is being redone: what stands on disk for it no longer counts."""
        if self._stages.pop(stage, None) is not None:
            self._write()

    def complete(self, stage: str, inputs: Inputs) -> None:
        """``stage``'s output is whole on disk."""
        self._stages[stage] = _plain(inputs)
        self._write()

    def _write(self) -> None:
        files.write_json(self._path, {"version": LEDGER_VERSION, "stages": self._stages})


def _plain(inputs: Inputs) -> dict[str, Any]:
    """Inputs as they come back from JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(inputs), allow_nan=False))
    return plain


def _shown(inputs: dict[str, Any], key: str) -> str:
    if key not in inputs:
        return "absent"
    text = repr(inputs[key])
    return text if len(text) <= 50 else text[:47] + "..."


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        value = json.loads(path.read_bytes())
        version, stages = value["version"], value["stages"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ManifestError(f"{path} is damaged ({error}); run again with --overwrite") from error
    if version != LEDGER_VERSION or not isinstance(stages, dict):
        raise ManifestError(f"{path} has version {version}, this program writes {LEDGER_VERSION}; use --overwrite")
    return stages
