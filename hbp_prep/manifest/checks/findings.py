"""What a verification found: named checks, each with its problems or with one line on what was proven."""

from dataclasses import asdict, dataclass
from typing import Any

from hbp_prep.errors import ManifestError

_MOST_PROBLEMS_SHOWN = 5

CHECKS = {
    "files": "every file of the manifest is present, with its size and checksum, columns and fingerprint",
    "stray_files": "shards/ and schedule/ hold no other file",
    "packs": "every pack's sums agree and none is longer than its packing group allows",
    "tokens": "token ids are in the vocabulary, and no sample's first token is a target",
    "samples": "every sample is in exactly one pack, with the tokens that samples.arrow states",
    "rows": "every input row read is in samples or in rejected, never in both",
    "schedule": "every micro-step gives every DP rank one pack; every pack comes once per epoch",
    "totals": "the manifest's sums are those of the files",
    "metrics": "metrics computed again from the shards equal those printed",
}
"""Names of the checks, in order, and what each proves."""

_QUICK = {
    "files": "every file of the manifest is present, with its size, columns and fingerprint; no checksum was computed",
    "tokens": "not read in a quick verification",
    "samples": "every sample is in exactly one pack, as long as samples.arrow states",
}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check's outcome. ``detail`` is what was proven, or every problem (the first few in full)."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """The outcome of all checks, in the order of :data:`CHECKS`."""

    folder: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.ok for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"folder": self.folder, "ok": self.ok, "checks": [asdict(check) for check in self.checks]}

    def raise_if_failed(self) -> None:
        """Raise what failed as one error, a line per check.

        Raises:
            ManifestError: at least one check failed.
        """
        failed = [f"{check.name}: {check.detail}" for check in self.checks if not check.ok]
        if failed:
            raise ManifestError(
                f"{self.folder} does not verify: {len(failed)} of {len(self.checks)} checks failed; "
                "do not train on it, run hbp-prep again\n  " + "\n  ".join(failed)
            )


class Findings:
    """Collects problems while checks run."""

    def __init__(self, *, quick: bool) -> None:
        self._proven = CHECKS | _QUICK if quick else CHECKS
        self._problems: dict[str, list[str]] = {name: [] for name in CHECKS}
        self._skipped: dict[str, str] = {}

    def add(self, check: str, problem: str) -> None:
        """``check`` failed."""
        self._problems[check].append(problem)

    def skip(self, check: str, why: str) -> None:
        """``check`` cannot be made whole, which counts as failed."""
        self._skipped.setdefault(check, why)

    def report(self, folder: str) -> VerifyReport:
        """Everything found, by check."""
        return VerifyReport(folder=folder, checks=tuple(self._check(name) for name in CHECKS))

    def _check(self, name: str) -> Check:
        problems = list(self._problems[name])
        more = len(problems) - _MOST_PROBLEMS_SHOWN
        shown = problems[:_MOST_PROBLEMS_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        if name in self._skipped:
            shown.append(f"not checked, because {self._skipped[name]}")
        return Check(name=name, ok=not shown, detail="; ".join(shown) or self._proven[name])
