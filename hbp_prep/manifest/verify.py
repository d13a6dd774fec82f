"""Proof, from the bytes alone, that a prepared folder keeps every promise of the contract (docs/manifest.md).

Shards are examined one by one, in as many processes as ``map_tasks`` has; the rest is streamed. Cost: about 100M tokens
a second and core from the page cache; memory of 20 bytes per sample, 60 per pack, and 100 MB per process.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hbp_prep.errors import ConfigError, ManifestError
from hbp_prep.manifest.checks.findings import CHECKS, Check, Findings, VerifyReport
from hbp_prep.manifest.checks.folder_files import check_strays, check_tables
from hbp_prep.manifest.checks.input_rows import InputRows
from hbp_prep.manifest.checks.metrics import check_metrics
from hbp_prep.manifest.checks.placement import PackTable, Placement
from hbp_prep.manifest.checks.sample_rows import check_rejected, check_samples, num_samples
from hbp_prep.manifest.checks.schedule_checks import check_schedule
from hbp_prep.manifest.checks.shard_facts import ShardFacts, ShardTask, examine_shard
from hbp_prep.manifest.checks.totals import check_group_totals, check_row_totals
from hbp_prep.manifest.document import load_manifest, manifest_path
from hbp_prep.manifest.schedule import load_schedule
from hbp_prep.manifest.schema import Manifest
from hbp_prep.progress import NoProgress, Progress, track

__all__ = ["CHECKS", "Check", "VerifyReport", "examine", "verify"]

MapTasks = Callable[[Callable[[ShardTask], ShardFacts], Iterable[ShardTask]], Iterator[ShardFacts]]


def verify(
    folder: Path | str,
    *,
    quick: bool = False,
    map_tasks: MapTasks = map,
    progress: Progress | None = None,
) -> VerifyReport:
    """Prove a prepared folder.

    Args:
        folder: The folder, or its manifest.json.
        quick: Read no token, mask or checksum: sizes, columns, sums, placement, schedule and metrics only.
        map_tasks: Like the builtin ``map``; an engine's ``map`` examines shards in parallel.
        progress: Told of tokens examined.

    Returns:
        One line per check, all passed.

    Raises:
        ManifestError: the folder has no readable manifest, or checks failed; each one is listed with its place.
    """
    report = examine(folder, quick=quick, map_tasks=map_tasks, progress=progress)
    report.raise_if_failed()
    return report


def examine(
    folder: Path | str,
    *,
    quick: bool = False,
    map_tasks: MapTasks = map,
    progress: Progress | None = None,
) -> VerifyReport:
    """Like :func:`verify`, but hand back failed checks in the report.

    Raises:
        ManifestError: the folder has no readable manifest.
    """
    manifest = load_manifest(folder)
    root = manifest_path(folder).parent
    verification = _Verification(root, manifest, quick)
    verification.run(map_tasks, progress or NoProgress())
    return verification.findings.report(str(root))


class _Verification:
    """One verification: the findings so far, and what later checks need of earlier ones."""

    def __init__(self, folder: Path, manifest: Manifest, quick: bool) -> None:
        self._folder = folder
        self._manifest = manifest
        self._quick = quick
        self.findings = Findings(quick=quick)

    def run(self, map_tasks: MapTasks, progress: Progress) -> None:
        """All checks. When a file cannot be read, only ``files`` and what concerns single shards is checked."""
        whole = check_tables(self._folder, self._manifest, self.findings, quick=self._quick)
        check_strays(self._folder, self._manifest, self.findings)
        placement = self._new_placement() if whole else None
        placement = self._examine_shards(placement, map_tasks, progress)
        if placement is None:
            for name in ("samples", "rows", "schedule", "totals", "metrics"):
                self.findings.skip(name, "a file cannot be used")
            return
        packs = placement.packs()
        placement.check_all_placed(self.findings)
        check_group_totals(self._manifest, packs, self.findings)
        self._check_rows(placement, packs)
        self._check_schedule(placement, packs)

    def _new_placement(self) -> Placement | None:
        try:
            return Placement(num_samples(self._folder, self._manifest))
        except ManifestError as error:
            self.findings.add("files", str(error))
            return None

    def _examine_shards(self, placement: Placement | None, map_tasks: MapTasks, progress: Progress) -> Placement | None:
        """Examine every shard into ``placement``; ``None`` when one cannot be read (or ``placement`` was ``None``)."""
        manifest = self._manifest
        places = [(index, shard) for index, group in enumerate(manifest.groups) for shard in range(len(group.shards))]
        tasks = [self._task(group, shard) for group, shard in places]
        with track(progress, "verify", sum(task.entry.num_tokens for task in tasks), "tokens"):
            for (group, shard), task, facts in zip(places, tasks, map_tasks(examine_shard, tasks), strict=True):
                for check, problem in facts.problems:
                    self.findings.add(check, problem)
                if not facts.readable:
                    placement = None
                if placement is not None:
                    placement.add(facts, task.entry.path, group, shard, self.findings)
                progress.advance(task.entry.num_tokens)
        return placement

    def _task(self, group: int, shard: int) -> ShardTask:
        entry = self._manifest.groups[group]
        return ShardTask(
            folder=str(self._folder),
            entry=entry.shards[shard],
            group=entry.name,
            pack_length=entry.pack_length,
            vocab_size=self._manifest.vocab_size,
            fingerprint=self._manifest.fingerprint,
            quick=self._quick,
        )

    def _check_rows(self, placement: Placement, packs: PackTable) -> None:
        """samples.arrow and rejected.arrow."""
        input_rows = InputRows()
        try:
            by_source = check_samples(
                self._folder, self._manifest, placement, packs, input_rows, self.findings, quick=self._quick
            )
            by_reason = check_rejected(self._folder, self._manifest, input_rows, self.findings)
        except ManifestError as error:
            self.findings.add("files", str(error))
            for name in ("samples", "rows", "totals"):
                self.findings.skip(name, "samples.arrow or rejected.arrow cannot be used")
            return
        input_rows.check(self._manifest.totals.rows_read, self.findings)
        check_row_totals(self._manifest, by_source, by_reason, self.findings)

    def _check_schedule(self, placement: Placement, packs: PackTable) -> None:
        """Both schedule files, and the metrics that follow from them."""
        try:
            schedule = load_schedule(self._folder, self._manifest)
        except ManifestError as error:
            self.findings.add("schedule", str(error))
            self.findings.skip("metrics", "the schedule cannot be used")
            return
        if not check_schedule(self._manifest, schedule, packs, self.findings):
            self.findings.skip("metrics", "the schedule cannot be used")
            return
        try:
            check_metrics(self._manifest, schedule, packs, placement.num_tokens, self.findings)
        except ConfigError as error:
            self.findings.add("metrics", str(error))
