"""Published methods, empty packs and curricula."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.planning.assemble import packs_from, schedule_packs
from hbp_prep.planning.balancing import form_micro_steps
from hbp_prep.planning.methods import METHODS
from hbp_prep.planning.methods.hbp import hierarchical_packs
from hbp_prep.planning.methods.longalign import loss_weights
from hbp_prep.planning.planner import make_plan
from hbp_prep.planning.types import EMPTY_PACK, Curriculum
from tests.unit.planning.building import COST, samples, skewed, spec

TWO = [(4096, 1), (131_072, 8)]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_measures_every_token(name: str) -> None:
    given_samples = samples(skewed(500, 8))
    metrics = METHODS[name](spec(TWO, 8), given_samples, COST)
    for key in ("pr", "dbr", "abr", "wabr", "tbr", "cr"):
        assert -1e-9 <= metrics[key] <= 1, key
    assert metrics["predicted_hours"] > 0
    assert metrics.get("num_tokens", given_samples.num_tokens.sum()) == given_samples.num_tokens.sum()


@settings(deadline=None, max_examples=30)
@given(lengths=st.lists(st.integers(1, 64), min_size=1, max_size=60), seed=st.integers(0, 9))
def test_hbp_places_every_sample_once_within_its_pack(lengths: list[int], seed: int) -> None:
    plan_spec = spec([(16, 1), (64, 2)], 4, seed=seed)
    pack_of_sample, sizes = hierarchical_packs(plan_spec, samples(lengths))
    assert sorted(set(pack_of_sample.tolist())) == list(range(sum(sizes))), "no pack is empty"
    loads = np.bincount(pack_of_sample, weights=lengths)
    limits = np.repeat([16, 64], sizes)
    assert (loads <= limits).all()
    assert all(length <= limits[pack] for length, pack in zip(lengths, pack_of_sample.tolist(), strict=True))


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 16), min_size=1, max_size=40),
    world_size=st.sampled_from([2, 4, 6, 8]),
    epochs=st.integers(1, 3),
)
def test_standing_packs_get_the_fewest_empty_ones(lengths: list[int], world_size: int, epochs: int) -> None:
    own = samples(lengths)
    packs = packs_from(own, np.arange(len(lengths)), np.zeros(len(lengths), np.int16))
    plan = schedule_packs(spec([(16, 2)], world_size, epochs=epochs), own, packs, COST)
    assigned = plan.schedule.assignment_packs.tolist()
    dp_size = world_size // 2
    for epoch in range(epochs):
        per_epoch = len(assigned) // epochs
        here = assigned[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(pack for pack in here if pack != EMPTY_PACK) == list(range(len(lengths)))
        assert here.count(EMPTY_PACK) == -len(lengths) % dp_size
    assert plan.micro_steps.num_tokens.sum() == epochs * sum(lengths)
    for index in range(len(plan.schedule)):
        first, last = plan.schedule.assignment_offsets[index : index + 2]
        costs = [0 if pack == EMPTY_PACK else lengths[pack] ** 2 for pack in assigned[first:last]]
        assert plan.micro_steps.abr[index] == pytest.approx(1 - np.mean(costs) / max(costs))


def test_empty_packs_stand_where_the_least_is_waited_for() -> None:
    own = samples([5, 1, 4, 2, 3])
    packs = packs_from(own, np.arange(5), np.zeros(5, np.int16))
    micro_steps = form_micro_steps(spec([(16, 1)], 4), packs.group, packs.attention_cost)
    assert sorted(micro_steps.packs[:4].tolist()) == [-1, -1, -1, 1]


def test_loss_weights_make_the_batch_a_mean_of_sample_means() -> None:
    losses = [np.array([1.0, 3.0]), np.array([6.0]), np.array([2.0, 2.0, 5.0])]
    weights = loss_weights(np.array([2, 1, 3], np.int32), num_packs=2)
    batch = sum(weight * loss.sum() for weight, loss in zip(weights, losses, strict=True)) / 2
    assert batch == pytest.approx(np.mean([loss.mean() for loss in losses]))
    assert loss_weights(np.array([0, 4], np.int32), num_packs=1).tolist() == [0.0, 0.25]


def test_alternate_has_whole_steps_of_either_kind_in_turn() -> None:
    curriculum = Curriculum(kind="alternate", first_phase_fraction=0.25)
    plan = make_plan(spec(TWO, 8, curriculum=curriculum), samples(skewed(6000, 40)), COST)
    schedule = plan.schedule
    kinds = [set((schedule.group[schedule.step == step] > 0).tolist()) for step in range(int(schedule.step[-1]) + 1)]
    assert all(len(kind) == 1 for kind in kinds)
    assert {schedule.phase_names[phase] for phase in schedule.phase} == {"short", "alternate"}
    later = [kind for step, kind in enumerate(kinds) if schedule.phase[schedule.step == step][0] == 1]
    changes = sum(left != right for left, right in itertools.pairwise(later))
    num_fewer = min(later.count({True}), later.count({False}))
    assert changes >= 2 * num_fewer - 1


def test_ramp_lets_the_longest_group_grow() -> None:
    groups = [(4096, 1), (16_384, 1), (131_072, 8)]
    curriculum = Curriculum(kind="ramp", first_phase_fraction=0.5)
    plan = make_plan(spec(groups, 8, curriculum=curriculum), samples(skewed(6000, 60)), COST)
    assert plan.schedule.phase_names == ("up to L4096", "up to L16384", "up to L131072")
    assert (plan.schedule.group <= plan.schedule.phase).all()
    assert (np.diff(plan.schedule.phase) >= 0).all()


def test_drift_tells_sorted_from_random_order() -> None:
    lengths = samples(skewed(4000, 0))
    drift = {
        order: make_plan(spec([(4096, 1)], 2, order=order), lengths, COST).metrics["batch_bias"]["order_drift"]  # type: ignore[index]
        for order in ("sorted", "random")
    }
    assert drift["random"] < 0.15 < 0.3 < drift["sorted"]
