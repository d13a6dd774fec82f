"""``hbp-prep compare``: every published method, and this project's plan, on one corpus.

Kernels are compiled on a few samples before the clock starts. A method that has no plan for the samples is a row with
its reason.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hbp_prep import files
from hbp_prep.cost.model import CostModel
from hbp_prep.errors import ConfigError, PlanError
from hbp_prep.pipeline.lengths import Problem
from hbp_prep.planning.methods import METHODS
from hbp_prep.planning.metrics import cr_floor
from hbp_prep.planning.planner import make_plan
from hbp_prep.planning.types import Curriculum, PlanSpec, Samples
from hbp_prep.planning.validate import validate_samples
from hbp_prep.progress import Progress, track
from hbp_prep.report.plans import comparison_html, comparison_svg
from hbp_prep.suggest import did_you_mean

OURS = "this plan"
WARM_UP_SAMPLES = 64
_CHARTS: dict[str, Callable[[Sequence[dict[str, Any]]], str]] = {".svg": comparison_svg, ".html": comparison_html}


def compare(problem: Problem, names: Sequence[str], progress: Progress) -> list[dict[str, Any]]:
    """Metrics of every method, ``planning_seconds`` beside them; this project's plan last.

    Args:
        names: Of ``METHODS``, as :func:`check_request` makes sure; empty means all.

    Returns:
        One dictionary per method: ``method`` and either metrics or ``error``.

    Raises:
        PlanError: a sample is longer than the longest packing length, which no method could place.
    """
    spec = replace(problem.spec, curriculum=Curriculum(), epochs=1)
    validate_samples(spec, problem.samples)
    rows = []
    chosen: dict[str, Callable[[PlanSpec, Samples, CostModel], Any]] = {
        name: METHODS[name] for name in (names or METHODS)
    }
    chosen[f"{OURS} ({spec.strategy})"] = _ours
    with track(progress, "compare", len(chosen), "methods"):
        for name, method in chosen.items():
            rows.append({"method": name} | _measure(method, spec, problem))
            progress.advance(1)
    return rows


def check_request(names: Sequence[str], chart: Path | None) -> None:
    """Refuse what :func:`compare` and :func:`write_chart` could not do, before a corpus is tokenised for it.

    Raises:
        ConfigError: an unknown method, or a chart whose name ends neither in ``.svg`` nor in ``.html``.
    """
    for name in names:
        if name not in METHODS:
            raise ConfigError(
                f"--method {name!r} is not known{did_you_mean(name, METHODS)}; there are {', '.join(METHODS)}"
            )
    if chart is not None and chart.suffix not in _CHARTS:
        raise ConfigError(f"--chart {chart}: its name must end in {' or '.join(_CHARTS)}")


def write_chart(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the comparison, as the name ends."""
    files.write_bytes(path, _CHARTS[path.suffix](rows).encode())


def _ours(spec: PlanSpec, samples: Samples, cost: CostModel) -> Any:
    return make_plan(spec, samples, cost).metrics


def _measure(method: Callable[[PlanSpec, Samples, CostModel], Any], spec: PlanSpec, problem: Problem) -> dict[str, Any]:
    _warm_up(method, spec, problem.cost)
    started = time.perf_counter()
    try:
        metrics = method(spec, problem.samples, problem.cost)
    except PlanError as error:
        return {"error": str(error)}
    seconds = time.perf_counter() - started
    return {**metrics, "cr_floor": cr_floor(spec, problem.samples), "planning_seconds": seconds}


def _warm_up(method: Callable[[PlanSpec, Samples, CostModel], Any], spec: PlanSpec, cost: CostModel) -> None:
    """Compile what the method uses, on samples of lengths up to the longest packing length."""
    longest = spec.groups[-1].pack_length
    lengths = np.linspace(max(1, longest // WARM_UP_SAMPLES), longest, WARM_UP_SAMPLES).astype(np.int32)
    few = Samples(
        num_tokens=lengths, num_loss_tokens=lengths, source=np.zeros(len(lengths), np.int16), source_names=("all",)
    )
    try:
        method(replace(spec, world_size=max(group.sp_degree for group in spec.groups)), few, cost)
    except PlanError:
        return  # too few samples for it; what it compiled before stays compiled
