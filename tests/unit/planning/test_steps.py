"""Micro-steps, steps and the curriculum."""

import numpy as np
import pytest

from hbp_prep.errors import PlanError
from hbp_prep.planning.balancing import form_micro_steps
from hbp_prep.planning.curriculum import make_schedule
from hbp_prep.planning.planner import make_plan
from hbp_prep.planning.types import Curriculum, PlanSpec
from tests.unit.planning.building import COST, samples, skewed, spec

TWO = [(1024, 1), (8192, 2)]


def two_phase(**curriculum: float) -> PlanSpec:
    return spec(TWO, 4, epochs=2, curriculum=Curriculum(kind="two_phase", **curriculum))


def micro_steps(settings: PlanSpec, num_short: int, num_long: int):  # type: ignore[no-untyped-def]
    group = np.repeat(np.array([0, 1], dtype=np.int16), [4 * num_short, 2 * num_long])
    return form_micro_steps(settings, group, np.random.default_rng(0).integers(1, 10**9, len(group)))


def test_sorted_micro_steps_waste_no_more_than_any_others() -> None:
    rng = np.random.default_rng(3)
    settings = spec([(1024, 1)], 4)
    cost = rng.integers(1, 10**6, 24)
    group = np.zeros(24, dtype=np.int16)
    found = form_micro_steps(settings, group, cost)
    assert sorted(found.packs.tolist()) == list(range(24))
    best = cost[found.packs].reshape(-1, 4).max(axis=1).sum()
    for _ in range(300):
        assert best <= cost[rng.permutation(24)].reshape(-1, 4).max(axis=1).sum()


def test_random_micro_steps_are_not_sorted() -> None:
    settings = spec([(1024, 1)], 4, order="random")
    cost = np.arange(400)
    found = form_micro_steps(settings, np.zeros(400, dtype=np.int16), cost)
    assert cost[found.packs].reshape(-1, 4).max(axis=1).sum() > 1.2 * cost.reshape(-1, 4).max(axis=1).sum()


def test_the_ranks_of_a_micro_step_are_drawn_at_random() -> None:
    settings = spec([(1024, 1)], 4)
    found = form_micro_steps(settings, np.zeros(400, dtype=np.int16), np.arange(400))
    dearest_rank = found.packs.reshape(-1, 4).argmax(axis=1)
    assert np.bincount(dearest_rank, minlength=4).min() > 10


def test_sorted_order_is_ascending() -> None:
    plan = make_plan(spec(TWO, 4, order="sorted"), samples(skewed(500, 0).clip(1, 1024)), COST)
    first = plan.schedule.assignment_offsets[:-1]
    largest = np.maximum.reduceat(plan.packs.attention_cost[plan.schedule.assignment_packs], first)
    assert (np.diff(largest[plan.schedule.group == 0]) >= 0).all()


def test_first_phase_holds_the_shortest_group_only() -> None:
    settings = two_phase(first_phase_steps=3)
    schedule = make_schedule(settings, micro_steps(settings, 11, 6))
    assert schedule.phase_names == ("short", "all")
    short = schedule.phase == 0
    assert len(set(schedule.step[short].tolist())) == 3 and short.sum() == 6
    assert (schedule.group[short] == 0).all()
    assert (np.diff(schedule.phase[schedule.epoch == 0]) >= 0).all()
    assert (schedule.phase[schedule.epoch == 1] == 1).all()
    left = schedule.group[(schedule.epoch == 0) & ~short].tolist()
    assert (left.count(0), left.count(1)) == (5, 6)


def test_first_phase_spans_the_costs() -> None:
    settings = two_phase(first_phase_fraction=0.5)
    found = micro_steps(settings, 40, 4)
    schedule = make_schedule(settings, found)
    rank_of_pack = np.empty(160, dtype=np.int64)
    rank_of_pack[found.packs[:160]] = np.arange(160) // 4
    starts = schedule.assignment_offsets[:-1][schedule.phase == 0]
    ranks = np.sort(rank_of_pack[schedule.assignment_packs[starts]])
    assert len(ranks) == 20
    assert np.diff(ranks).max() <= 3


@pytest.mark.parametrize(("fraction", "steps"), [(0.0, 0), (0.25, 1), (0.5, 2), (1.0, 5)])
def test_fractions(fraction: float, steps: int) -> None:
    settings = two_phase(first_phase_fraction=fraction)
    schedule = make_schedule(settings, micro_steps(settings, 11, 6))
    assert len(set(schedule.step[schedule.phase == 0].tolist())) == steps


def test_too_long_a_first_phase_is_refused_with_the_largest_possible() -> None:
    settings = two_phase(first_phase_steps=6)
    with pytest.raises(PlanError, match="have 11 micro-steps: with 2 per step they can fill at most 5 steps"):
        make_schedule(settings, micro_steps(settings, 11, 6))


def test_epochs_hold_the_same_micro_steps_in_new_steps() -> None:
    settings = spec(TWO, 4, epochs=3)
    schedule = make_schedule(settings, micro_steps(settings, 12, 6))
    sets = []
    for epoch in range(3):
        rows = np.flatnonzero(schedule.epoch == epoch)
        bounds = schedule.assignment_offsets
        packs = [tuple(schedule.assignment_packs[bounds[row] : bounds[row + 1]].tolist()) for row in rows]
        sets.append((sorted(packs), packs))
    assert sets[0][0] == sets[1][0] == sets[2][0]
    assert sets[0][1] != sets[1][1] != sets[2][1]


def test_long_micro_steps_are_spread_over_the_run() -> None:
    """Ten long ones among forty, four to a step: every step of the ten has one."""
    settings = spec(TWO, 4, micro_steps_per_step=4)
    schedule = make_schedule(settings, micro_steps(settings, 30, 10))
    held = np.bincount(schedule.step, weights=schedule.group == 1)
    assert held.tolist() == [1.0] * 10


def test_stratified_steps_are_nearer_to_the_corpus_than_sorted_ones() -> None:
    data = samples(skewed(6000, 0))
    data = type(data)(
        num_tokens=data.num_tokens,
        num_loss_tokens=data.num_loss_tokens,
        source=(data.num_tokens > 300).astype(np.int16),
        source_names=("brief", "talkative"),
    )
    bias = {
        order: make_plan(
            spec([(4096, 1)], 16, strategy="bfd", micro_steps_per_step=4, order=order), data, COST
        ).metrics["batch_bias"]
        for order in ("stratified", "sorted")
    }
    assert bias["stratified"]["mean"] < 0.7 * bias["sorted"]["mean"]
    assert bias["stratified"]["samples_per_step_cv"] < 0.5 * bias["sorted"]["samples_per_step_cv"]
