"""The ledger: which stages of a run are complete, and what exactly they were made from.

``.work/ledger.json`` holds, per stage, the flat inputs (key -> plain value) that the stage's output depends on, and the
checksums of the small files that it left. A stage is current when both are equal; the difference says why it is not.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hbp_prep import files
from hbp_prep.errors import ManifestError

LEDGER_VERSION = 2
_MOST_REASONS_SHOWN = 3

Inputs = Mapping[str, Any]


class Ledger:
    """The ledger of one output folder; every change is on disk when the call returns.

    Args:
        path: The ledger's file, ``OUT/.work/ledger.json``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._root = path.parent.parent
        self._stages: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._stages = _read(path)

    def is_current(self, stage: str, inputs: Inputs) -> bool:
        """Whether ``stage`` was completed from exactly these inputs, and what it left is still there, unchanged."""
        return not self.why_not_current(stage, inputs)

    def why_not_current(self, stage: str, inputs: Inputs) -> str:
        """What has changed since ``stage`` was completed, e.g. ``packing.strategy: 'bfs' -> 'isf'``; empty: nothing."""
        if stage not in self._stages:
            return "not done before"
        old, new = self._stages[stage]["inputs"], _plain(inputs)
        changes = [
            f"{key}: {_shown(old, key)} -> {_shown(new, key)}"
            for key in sorted(old.keys() | new.keys())
            if old.get(key, ...) != new.get(key, ...)
        ]
        for name, checksum in self._stages[stage]["outputs"].items():
            path = self._root / name
            if not path.is_file() or files.sha256_file(path) != checksum:
                changes.append(f"{name} is missing or damaged")
        more = len(changes) - _MOST_REASONS_SHOWN
        return "; ".join(changes[:_MOST_REASONS_SHOWN]) + (f"; and {more} more" if more > 0 else "")

    def begin(self, stage: str) -> None:
        """``stage`` is being redone: what stands on disk for it no longer counts."""
        if self._stages.pop(stage, None) is not None:
            self._write()

    def complete(self, stage: str, inputs: Inputs, outputs: Iterable[Path] = ()) -> None:
        """``stage`` is whole on disk.

        Args:
            outputs: Files below the output folder whose checksums are kept.
        """
        checksums = {path.relative_to(self._root).as_posix(): files.sha256_file(path) for path in outputs}
        self._stages[stage] = {"inputs": _plain(inputs), "outputs": checksums}
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
        is_whole = all(isinstance(stage[part], dict) for stage in stages.values() for part in ("inputs", "outputs"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ManifestError(f"{path} is damaged ({error}); run again with --overwrite") from error
    if version != LEDGER_VERSION or not is_whole:
        raise ManifestError(f"{path} has version {version}, this program writes {LEDGER_VERSION}; use --overwrite")
    return stages
