"""docs/metrics.md: its worked example is what the planner computes, and it names every metric of the report."""

import re
from pathlib import Path

import numpy as np
import pytest

from hbp_prep.planning.metrics import micro_step_metrics, pack_seconds, plan_metrics
from hbp_prep.planning.types import Curriculum, PackingGroup, Packs, PlanSpec, Samples, Schedule
from hbp_prep.report.glossary import METRICS
from hbp_prep.report.tables import lookup

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
PACKS = [[8], [4, 4], [3, 5], [2, 5], [12, 3]]


class ExampleCost:
    def pack_seconds(self, num_tokens, attention_cost, *, sp_degree, gc_layers):
        return (num_tokens + attention_cost / 100) / sp_degree


@pytest.fixture(scope="module")
def metrics():
    lengths = np.concatenate(PACKS).astype(np.int32)
    spec = PlanSpec(
        groups=(
            PackingGroup(name="8", pack_length=8, sp_degree=1),
            PackingGroup(name="16", pack_length=16, sp_degree=2),
        ),
        world_size=2,
        strategy="bfs",
        order="stratified",
        micro_steps_per_step=2,
        curriculum=Curriculum(),
        epochs=1,
        seed=0,
    )
    samples = Samples(
        num_tokens=lengths,
        num_loss_tokens=np.ones_like(lengths),
        source=np.repeat([0, 1], [7, 2]).astype(np.int16),
        source_names=("short", "long"),
    )
    packs = Packs(
        group=np.array([0, 0, 0, 0, 1], np.int16),
        offsets=np.cumsum([0, *map(len, PACKS)]),
        sample_ids=np.arange(len(lengths)),
        num_tokens=np.array([sum(pack) for pack in PACKS], np.int32),
        num_loss_tokens=np.array([len(pack) for pack in PACKS], np.int32),
        attention_cost=np.array([sum(length**2 for length in pack) for pack in PACKS]),
    )
    schedule = Schedule(
        epoch=np.zeros(3, np.int16),
        step=np.array([0, 0, 1], np.int32),
        micro_step=np.array([0, 1, 0], np.int16),
        group=np.array([0, 1, 0], np.int16),
        phase=np.zeros(3, np.int16),
        phase_names=("all",),
        assignment_offsets=np.array([0, 2, 3, 5]),
        assignment_packs=np.array([0, 1, 4, 2, 3]),
    )
    seconds = pack_seconds(spec, packs, ExampleCost())
    micro_steps = micro_step_metrics(packs, schedule, seconds)
    return plan_metrics(spec, samples, packs, schedule, micro_steps, seconds)


@pytest.mark.parametrize(
    "key",
    [
        "abr", "wabr", "dbr", "tbr", "wtbr", "cr", "cr_floor", "pr", "ave_tokens", "predicted_hours",
        "batch_bias.mean", "samples_per_step_cv",
    ],
)  # fmt: skip
def test_worked_example(metrics, key):
    """The first bold figure after each key."""
    example = PAGE.read_text(encoding="utf-8").split("## A worked example")[1]
    printed = re.search(rf"`{re.escape(key)}`.*?\*\*([\d.]+)(?: h)?\*\*", example, re.DOTALL)[1]
    key = "batch_bias.samples_per_step_cv" if key == "samples_per_step_cv" else key
    decimals = len(printed.partition(".")[2])
    assert f"{lookup(metrics, key):.{decimals}f}" == printed


def test_every_metric_is_defined():
    page = PAGE.read_text(encoding="utf-8")
    for metric in METRICS:
        assert f"| `{metric.key}`" in page or f", `{metric.key}` |" in page, metric.key
