"""One run: corpus -> tokenization -> planning -> sharding -> report, each stage done only when it must be.

Everything that can be wrong with a recipe is found before anything in the output folder changes. A stage that the
ledger knows as complete from the same inputs is kept; another is redone, and the run says why.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from hbp_prep import files
from hbp_prep.corpus.scan import FileScan, scan_corpus
from hbp_prep.corpus.sieve import sieve_corpus
from hbp_prep.corpus.types import Corpus
from hbp_prep.engines.local import Engine
from hbp_prep.errors import ConfigError, DataError, ManifestError
from hbp_prep.manifest.document import load_manifest
from hbp_prep.pipeline import stages
from hbp_prep.pipeline.folder import OutputFolder, State
from hbp_prep.pipeline.ledger import Ledger
from hbp_prep.pipeline.load import resolved_yaml
from hbp_prep.pipeline.recipe import Recipe
from hbp_prep.pipeline.specs import StageInputs, cost_model, plan_spec, source_specs, stage_inputs, tokenization_spec
from hbp_prep.planning.types import Samples
from hbp_prep.progress import Progress
from hbp_prep.report.write import read_report
from hbp_prep.tokenization.tokenizer import ChatTokenizer


class Mode(Enum):
    """What to do with an output folder that is not empty."""

    NEW = "new"  # refuse, unless it is finished and from the same recipe and data
    RESUME = "resume"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, kw_only=True)
class StageOutcome:
    """What happened to one stage."""

    name: str
    redone: bool
    why: str
    seconds: float
    peak_rss_bytes: int


@dataclass(kw_only=True)
class RunSummary:
    """What a run did; ``nothing_to_do`` when the folder was finished already."""

    out: Path
    fingerprint: str
    nothing_to_do: bool = False
    outcomes: list[StageOutcome] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {
            "out": str(self.out),
            "fingerprint": self.fingerprint,
            "nothing_to_do": self.nothing_to_do,
            "stages": [asdict(outcome) for outcome in self.outcomes],
        }


class Runner:
    """Runs one recipe into one folder."""

    def __init__(self, recipe: Recipe, out: Path, *, engine: Engine, progress: Progress) -> None:
        self.recipe = recipe
        self.folder = OutputFolder(out)
        self.engine = engine
        self.progress = progress
        self.plan_spec = plan_spec(recipe)
        self.cost = cost_model(recipe)

    def run(self, mode: Mode) -> RunSummary:
        """Run all stages that are not current.

        Raises:
            HbpError: with one clear sentence; see :mod:`hbp_prep.errors` for the kinds.
        """
        self._refuse_early(mode)
        tokenizer = ChatTokenizer.load(tokenization_spec(self.recipe))
        with self.folder.lock():
            files.remove_stray_temps(self.folder.root)
            started = time.perf_counter()
            corpus, scans = self._scan()
            inputs = stage_inputs(self.recipe, corpus, tokenizer.fingerprint)
            summary = RunSummary(out=self.folder.root, fingerprint=inputs.fingerprint)
            if mode is not Mode.OVERWRITE and self._is_finished(inputs):
                summary.nothing_to_do = True
                return summary
            self._admit(mode, inputs)
            files.write_json(self.folder.scans, [scan.to_dict() for scan in scans])
            summary.outcomes.append(_outcome("corpus", True, "files scanned", time.perf_counter() - started))
            self._run_stages(summary, corpus, tokenizer, inputs)
        return summary

    def tokenize(self) -> Samples:
        """Scan and tokenise only, or use what the folder has of the same corpora; a later run continues from there.

        Raises:
            ConfigError: the folder is not ours, or finished from other data.
            HbpError: as :meth:`run`.
        """
        self._refuse_early(Mode.RESUME)
        tokenizer = ChatTokenizer.load(tokenization_spec(self.recipe))
        with self.folder.lock():
            corpus, scans = self._scan()
            inputs = stage_inputs(self.recipe, corpus, tokenizer.fingerprint)
            ledger = Ledger(self.folder.ledger)
            context = self._context(corpus, tokenizer, inputs)
            why = ledger.why_not_current("tokenization", inputs.tokenization)
            if why and self.folder.state() is State.FINISHED:
                raise ConfigError(
                    f"{self.folder.root} is finished, but its tokens are not this recipe's ({why}); "
                    "choose another folder"
                )
            if why:
                files.write_json(self.folder.scans, [scan.to_dict() for scan in scans])
                ledger.begin("tokenization")
                ledger.complete("tokenization", inputs.tokenization, stages.tokenize(context))
            return stages.planned_samples(context)

    def _context(self, corpus: Corpus, tokenizer: ChatTokenizer, inputs: StageInputs) -> stages.Context:
        return stages.Context(
            recipe=self.recipe,
            folder=self.folder,
            map_tasks=self.engine.map,
            progress=self.progress,
            corpus=corpus,
            tokenizer=tokenizer,
            plan_spec=self.plan_spec,
            cost=self.cost,
            fingerprint=inputs.fingerprint,
        )

    def _refuse_early(self, mode: Mode) -> None:
        state = self.folder.state()
        out = self.folder.root
        if state is State.FOREIGN:
            raise ConfigError(f"--output {out} is not empty and not from hbp-prep; choose an empty or new folder")
        if state is State.UNFINISHED and mode is Mode.NEW:
            raise ConfigError(
                f"--output {out} holds an unfinished run; continue it with --resume, or start anew with --overwrite"
            )

    def _scan(self) -> tuple[Corpus, list[FileScan]]:
        corpus, scans = scan_corpus(
            source_specs(self.recipe),
            map_tasks=self.engine.map,
            progress=self.progress,
            previous=self._previous_scans(),
            spool=self.folder.corpus,
        )
        corpus = sieve_corpus(
            corpus,
            deduplicate=self.recipe.deduplicate,
            folder=self.folder.corpus,
            map_tasks=self.engine.map,
            progress=self.progress,
        )
        return corpus, scans

    def _previous_scans(self) -> list[FileScan]:
        """Scans of an earlier run; they only save time, so damaged ones are made again."""
        if not self.folder.scans.exists():
            return []
        try:
            return [FileScan.from_dict(item) for item in json.loads(self.folder.scans.read_bytes())]
        except (OSError, ValueError, TypeError, RecursionError, DataError) as error:
            self.progress.say(f"{self.folder.scans} cannot be used ({error}); every file is scanned again")
            return []

    def _is_finished(self, inputs: StageInputs) -> bool:
        """Whether the folder is what this recipe and these data give, with every file in its place."""
        if self.folder.state() is not State.FINISHED:
            return False
        try:
            if not self.folder.page.exists():
                return False
            is_same_recipe = self.folder.resolved.read_bytes() == resolved_yaml(self.recipe).encode()
            read_report(self.folder.root)
            manifest = load_manifest(self.folder.root)
        except (OSError, ManifestError):
            return False
        return is_same_recipe and manifest.fingerprint == inputs.fingerprint and stages.has_all_files(self.folder)

    def _admit(self, mode: Mode, inputs: StageInputs) -> None:
        """Refuse a finished folder of another recipe, or make way."""
        if mode is Mode.OVERWRITE:
            self.folder.remove_outputs()
        elif self.folder.state() is State.FINISHED and mode is Mode.NEW:
            why = self._why_changed(inputs)
            raise ConfigError(
                f"--output {self.folder.root} holds a finished run of another recipe or other data ({why}); "
                "redo only what changed with --resume, start anew with --overwrite, or choose another folder"
            )

    def _why_changed(self, inputs: StageInputs) -> str:
        ledger = Ledger(self.folder.ledger)
        for stage in ("tokenization", "planning", "sharding", "report"):
            if why := ledger.why_not_current(stage, getattr(inputs, stage)):
                return why
        return "resolved.yaml, its report or a file that its manifest names is missing or another"

    def _run_stages(self, summary: RunSummary, corpus: Corpus, tokenizer: ChatTokenizer, inputs: StageInputs) -> None:
        ledger = Ledger(self.folder.ledger)
        context = self._context(corpus, tokenizer, inputs)
        steps: list[tuple[str, dict[str, Any], Callable[[stages.Context], list[Path]]]] = [
            ("tokenization", inputs.tokenization, stages.tokenize),
            ("planning", inputs.planning, stages.plan),
            ("sharding", inputs.sharding, stages.shard),
            ("report", inputs.report, stages.report),
        ]
        whys = {name: self._why_stale(ledger, name, stage_input) for name, stage_input, _ in steps}
        for name, stage_input, do in steps:
            # Stored tokens are checked, and mended, before anything is made again.
            is_check = name == "tokenization" and any(whys.values())
            if not whys[name] and not is_check:
                self.progress.say(f"{name}: unchanged, kept")
                summary.outcomes.append(_outcome(name, False, "unchanged", 0.0))
                continue
            self.progress.say(f"{name}: {whys[name] or 'unchanged, checked'}")
            if whys[name]:
                if name != "report":
                    self.folder.manifest.unlink(missing_ok=True)  # from here on the folder is unfinished
                    whys["sharding"] = whys["sharding"] or f"{name} was done again"
                ledger.begin(name)
            started = time.perf_counter()
            outputs = do(context)
            ledger.complete(name, stage_input, outputs)
            why = whys[name] or "unchanged"
            summary.outcomes.append(_outcome(name, bool(whys[name]), why, time.perf_counter() - started))

    def _why_stale(self, ledger: Ledger, name: str, stage_input: dict[str, Any]) -> str:
        why = ledger.why_not_current(name, stage_input)
        if name == "sharding" and not why and not stages.has_all_files(self.folder):
            return "a file that the manifest names is missing or cut short"
        return why


def _outcome(name: str, redone: bool, why: str, seconds: float) -> StageOutcome:
    return StageOutcome(name=name, redone=redone, why=why, seconds=seconds, peak_rss_bytes=_peak_rss_bytes())


def _peak_rss_bytes() -> int:
    """Largest resident set so far of this process or of any ended child (getrusage; KiB on Linux, bytes on macOS)."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
