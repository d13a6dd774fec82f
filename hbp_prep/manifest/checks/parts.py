"""Parts of rows that were split, against each other: each is what its name says, and what they lack is counted."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hbp_prep.manifest.checks.findings import Findings
from hbp_prep.manifest.parts import part_range


class _Part(NamedTuple):
    row: tuple[str, str, int, int]
    first: int
    stop: int


class Parts:
    """Takes in samples.arrow batch by batch; memory of one part. ``num_lost_tokens`` is known at the end."""

    def __init__(self, name: str, findings: Findings) -> None:
        self._name = name
        self._findings = findings
        self._last: _Part | None = None
        self._num_lost = 0
        self._is_broken = False

    def add(self, batch: pa.RecordBatch, start: int) -> None:
        """Take in a batch whose first row has number ``start``."""
        for at in np.flatnonzero(batch.column("truncated_from").is_valid().to_numpy(zero_copy_only=False)).tolist():
            if self._is_broken:
                return
            line = batch.slice(at, 1).to_pylist()[0]
            found = part_range(line["original_id"])
            length = line["truncated_from"]
            if found is None or found[1] - found[0] != line["num_tokens"] or found[1] > length:
                self._problem(start + at, "its original_id does not name the tokens of a part")
                return
            self._follow(_Part((line["source"], line["file"], line["row"], length), *found), start + at)

    def num_lost_tokens(self) -> int | None:
        """Tokens of split rows that no part holds; ``None`` if a part is wrong."""
        self._close()
        return None if self._is_broken else self._num_lost

    def _follow(self, part: _Part, number: int) -> None:
        last = self._last
        if last is None or last.row != part.row or part.first <= last.first:  # another row, or another use of the same
            self._close()
            self._num_lost += part.first
        elif part.first < last.stop - 1:
            self._problem(number, "it has more than one token of the part before it")
            return
        else:
            self._num_lost += max(0, part.first - last.stop)
        self._last = part

    def _close(self) -> None:
        if self._last is not None:
            self._num_lost += self._last.row[3] - self._last.stop
        self._last = None

    def _problem(self, number: int, what: str) -> None:
        self._findings.add("samples", f"{self._name}: row {number}: {what}")
        self._is_broken = True
