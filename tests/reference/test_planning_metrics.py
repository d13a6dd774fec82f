"""The metrics against their definitions, in plain Python loops."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.planning.bounds import imbalance_bounds
from hbp_prep.planning.planner import make_plan
from hbp_prep.planning.types import Curriculum, Plan, Samples
from tests.unit.planning.building import COST, samples, skewed, spec

SETTINGS = {
    "two groups": spec([(2048, 1), (131_072, 8)], 16, micro_steps_per_step=3, epochs=2),
    "three groups, curriculum": spec(
        [(1000, 1), (16_384, 2), (131_072, 4)],
        8,
        strategy="isf",
        curriculum=Curriculum(kind="two_phase", first_phase_fraction=0.5),
    ),
    "one group": spec([(131_072, 1)], 4, order="sorted", strategy="ffd"),
    "random order": spec([(4096, 1), (131_072, 4)], 8, order="random", strategy="random"),
}


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def imbalance(values: list[float]) -> float:
    return sum(max(values) - value for value in values) / (max(values) * len(values))


def reference(plan: Plan, given_: Samples) -> dict[str, float]:
    """The scalar metrics, from the plan's packs and schedule alone."""
    packs, schedule, groups = plan.packs, plan.schedule, plan.spec.groups
    offsets = packs.offsets.tolist()
    members = [packs.sample_ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]
    lengths = given_.num_tokens.tolist()
    tokens = [sum(lengths[sample] for sample in own) for own in members]
    attention = [sum(lengths[sample] ** 2 for sample in own) for own in members]
    setting = [groups[index] for index in packs.group.tolist()]
    seconds = [
        float(COST.pack_seconds(token, cost, sp_degree=group.sp_degree, gc_layers=group.gc_layers))
        for token, cost, group in zip(tokens, attention, setting, strict=True)
    ]
    bounds = schedule.assignment_offsets.tolist()
    ranks = [schedule.assignment_packs[a:b].tolist() for a, b in itertools.pairwise(bounds)]
    by_rank = {
        name: [[values[pack] for pack in row] for row in ranks]
        for name, values in (("abr", attention), ("dbr", tokens), ("tbr", seconds))
    }
    figures = {name: mean([imbalance(row) for row in rows]) for name, rows in by_rank.items()}
    for waiting, name in (("wabr", "abr"), ("wtbr", "tbr")):
        means, maxima = sum(mean(row) for row in by_rank[name]), sum(max(row) for row in by_rank[name])
        figures[waiting] = 1 - means / maxima
    executed = []
    for token, group in zip(tokens, setting, strict=True):
        padded = token
        while padded < group.pack_length and (padded % group.sp_degree or padded % 128):
            padded += 1
        executed.append(padded)
    figures["pr"] = 1 - sum(tokens) / sum(group.pack_length for group in setting)
    figures["pr_executed"] = 1 - sum(tokens) / sum(executed)
    figures["cr"] = sum(t for t, group in zip(tokens, setting, strict=True) if group.sp_degree > 1) / sum(tokens)
    solo = max((group.pack_length for group in groups if group.sp_degree == 1), default=0)
    figures["cr_floor"] = sum(length for length in lengths if length > solo) / sum(lengths)
    num_steps = len(set(schedule.step.tolist()))
    figures["ave_tokens"] = sum(mean([tokens[pack] for pack in row]) for row in ranks) / num_steps
    figures["predicted_hours"] = sum(max(row) for row in by_rank["tbr"]) / 3600
    return figures


def bias(plan: Plan, given_: Samples) -> dict[str, float]:
    """Distance of every step's token share by source from the corpus's, and the spread of samples per step."""
    sources = range(len(given_.source_names))
    total = sum(given_.num_tokens.tolist())
    corpus = [sum(given_.num_tokens[given_.source == source].tolist()) / total for source in sources]
    steps: dict[int, list[int]] = {}
    for index, step in enumerate(plan.schedule.step.tolist()):
        a, b = plan.schedule.assignment_offsets[index : index + 2]
        for pack in plan.schedule.assignment_packs[a:b]:
            first, last = plan.packs.offsets[pack : pack + 2]
            steps.setdefault(step, []).extend(plan.packs.sample_ids[first:last].tolist())
    distances = []
    for own in steps.values():
        tokens = sum(int(given_.num_tokens[sample]) for sample in own)
        share = [
            sum(int(given_.num_tokens[sample]) for sample in own if given_.source[sample] == source) / tokens
            for source in sources
        ]
        distances.append(sum(abs(a - b) for a, b in zip(share, corpus, strict=True)) / 2)
    counts = [len(own) for own in steps.values()]
    deviation = math.sqrt(mean([(count - mean(counts)) ** 2 for count in counts]))
    return {"mean": mean(distances), "samples_per_step_cv": deviation / mean(counts), "max": max(distances)}


@pytest.mark.parametrize("name", list(SETTINGS))
def test_metrics_equal_their_definitions(name: str) -> None:
    data = samples(skewed(900, 25), num_sources=5)
    plan = make_plan(SETTINGS[name], data, COST)
    for key, value in reference(plan, data).items():
        assert plan.metrics[key] == pytest.approx(value, rel=1e-9, abs=1e-12), key
    found = plan.metrics["batch_bias"]
    expected = bias(plan, data)
    assert found["mean"] == pytest.approx(expected["mean"], rel=1e-9)
    assert found["samples_per_step_cv"] == pytest.approx(expected["samples_per_step_cv"], rel=1e-9)
    assert found["mean"] <= found["p95"] <= expected["max"] + 1e-12
    assert 0 <= found["random_mean"] < 1


def test_a_group_without_packs_has_zeros_and_no_nan() -> None:
    data = samples([100] * 64)
    plan = make_plan(spec([(1024, 1), (8192, 2)], 2), data, COST)
    unused = plan.metrics["packing_groups"][1]
    assert unused["num_packs"] == 0
    assert [unused[key] for key in ("abr", "wabr", "dbr", "tbr", "wtbr", "pr", "pr_executed")] == [0.0] * 7


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([2, 4, 8]), st.sampled_from(["bfs", "bfd", "isf"]))
def test_no_plan_undercuts_the_bounds(seed: int, world_size: int, strategy: str) -> None:
    rng = np.random.default_rng(seed)
    lengths = np.concatenate([rng.integers(1, 500, 300), rng.integers(500, 8192, rng.integers(1, 20))])
    data = samples(lengths)
    plan = make_plan(spec([(1024, 1), (8192, 2)], world_size, strategy=strategy, seed=seed), data, COST)
    bounds = plan.metrics["bounds"]
    assert plan.metrics["abr"] >= bounds["abr"] - 1e-12
    assert plan.metrics["wabr"] >= bounds["wabr"] - 1e-12
    assert plan.metrics["cr"] >= plan.metrics["cr_floor"]
    assert bounds["num_micro_steps_planned"] >= bounds["num_micro_steps"]
    for group in bounds["packing_groups"]:
        assert group["num_packs_planned"] >= group["num_packs"]


def test_the_imbalance_bound_is_met_where_nothing_can_share_a_pack() -> None:
    """Samples that fill more than half of a pack each: one a pack, so the bound of the one micro-step is exact."""
    settings_ = spec([(1000, 1)], 4)
    data = samples([1000, 1000, 1000, 1000])
    assert imbalance_bounds(settings_, data, 1) == (0.0, 0.0)
    plan = make_plan(settings_, samples([1000, 900, 900, 900]), COST)
    abr, wabr = imbalance_bounds(settings_, samples([1000, 900, 900, 900]), 1)
    at_most = 900**2 + 100 * 100  # what else could share the room of 100 tokens
    assert abr == pytest.approx(3 * (1000**2 - at_most) / (4 * 1000**2))
    assert 0 < abr <= plan.metrics["abr"]
    assert 0 < wabr <= plan.metrics["wabr"]
