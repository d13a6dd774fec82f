"""Two-dimensional packing: nothing lost, nothing overfull, tokens and attention near their targets."""

from typing import Any

import numpy as np
import pytest

from hbp_prep.planning.balanced import _Packing, equal_fullness, water_level
from hbp_prep.planning.kernels.best_fit import best_fit
from hbp_prep.planning.kernels.by_length import longest_first
from hbp_prep.planning.kernels.exchange import gather_room
from hbp_prep.planning.kernels.two_dimensional import pack_towards
from hbp_prep.planning.layouts import make_layout, own_slices
from hbp_prep.planning.packing import pack_samples
from hbp_prep.planning.planner import make_plan
from hbp_prep.planning.tight_packs import fewest_packs, pack_tightly
from hbp_prep.planning.types import Curriculum
from tests.unit.planning.building import COST, check_plan, samples
from tests.unit.planning.building import spec as make_spec

ROWS = [(4096, 1), (16384, 4)]


@pytest.mark.parametrize("seed", range(4))
def test_every_sample_lies_in_one_pack_and_no_pack_is_empty_or_overfull(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(6, 1, 20_000).clip(8, 16384).astype(np.int32)
    spec = make_spec(ROWS, 8, strategy="balanced", seed=seed)
    filled = pack_samples(spec, lengths, COST)
    capacity = np.array([length for length, _ in ROWS])[filled.group_of_pack]
    loads = np.bincount(filled.pack_of_sample, weights=lengths, minlength=len(capacity))
    assert filled.pack_of_sample.min() >= 0
    assert (loads > 0).all() and (loads <= capacity).all()
    assert loads.sum() == lengths.sum(dtype=np.int64)
    for group in range(2):
        assert (filled.group_of_pack == group).sum() % spec.dp_size(group) == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [1.0, 0.75, 0.5625])
def test_loads_are_those_of_the_samples_placed_also_after_another_try(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    lengths = np.sort(rng.lognormal(6, 1.2, 6000).clip(8, 16384).astype(np.int64))[::-1].copy()
    rows = [(2048, 1), (4096, 2), (16384, 4)]
    spec = make_spec(rows, 8, strategy="balanced", seed=seed)
    longest = np.array([2048 * share, 4096 * share, 16384]).astype(np.int64)
    slices = own_slices(lengths, longest)
    tight = [
        pack_tightly(lengths[slices[group + 1] : slices[group]], rows[group][0], spec.dp_size(group), seed)
        for group in range(3)
    ]
    fewest = np.array([bins.max() + 1 for bins in tight])
    packing = _Packing(spec, make_layout(spec, lengths, longest, fewest, 0), lengths, tight)
    packing.run()
    placed = packing.pack >= 0
    loads = np.bincount(packing.pack[placed], weights=lengths[placed], minlength=len(packing.loads))
    assert placed.any() and packing.loads.tolist() == loads.tolist()


@pytest.mark.parametrize(
    ("rows", "world_size", "lengths"),
    [
        ([(500, 1), (4000, 1), (4200, 4)], 8, [4200] + [2000] * 8 + [1333] * 12),
        ([(500, 1), (4000, 1), (4200, 4), (5000, 4)], 8, [4200, 5000, 5000] + [2000] * 8 + [1333] * 12),
        ([(4096, 1), (32768, 1)], 1, [1962, 469, 2257, 198, 741, 1191, 822, 514]),
        ([(524288, 1)], 1, [57901, 172731, 419636, 137423, 377383, 295842, 114529, 464946]),
        ([(64, 1)], 4, [64] * 4),
    ],
)
def test_hard_to_fill_corpora_are_planned(rows: list[tuple[int, int]], world_size: int, lengths: list[int]) -> None:
    spec, all_samples = make_spec(rows, world_size, strategy="balanced"), samples(lengths)
    check_plan(make_plan(spec, all_samples, COST), all_samples)


@pytest.mark.parametrize(
    ("rows", "world_size", "num_samples", "changes"),
    [
        ([(8, 4), (16, 4), (64, 2), (256, 4)], 12, 250, {"curriculum": Curriculum(kind="ramp", first_phase_steps=1)}),
        (
            [(1, 1), (6, 1), (64, 1)],
            2,
            13,
            {"curriculum": Curriculum(kind="two_phase", first_phase_steps=1), "micro_steps_per_step": 3, "seed": 849},
        ),
    ],
)
def test_layouts_that_starve_the_curriculum_are_not_taken(
    rows: list[tuple[int, int]], world_size: int, num_samples: int, changes: dict[str, Any]
) -> None:
    spec, all_samples = make_spec(rows, world_size, strategy="balanced", **changes), samples([1] * num_samples)
    plan = make_plan(spec, all_samples, COST)
    check_plan(plan, all_samples)
    assert plan.schedule.phase[0] == 0


def test_the_search_for_room_ends_where_no_exchange_helps() -> None:
    lengths = np.repeat(np.array([900, 300], dtype=np.int64), 30_000)
    packs = np.arange(60_000, dtype=np.int64)
    packs[-1] = -1
    rooms = np.full(60_000, 299, dtype=np.int64)
    before = packs.copy()
    assert not gather_room(lengths, packs, rooms)
    assert packs.tolist() == before.tolist() and rooms.min() == rooms.max() == 299


def test_a_tight_packing_takes_no_micro_step_that_another_one_saves() -> None:
    lengths = np.array([59, 53, 37, 37, 37, 33, 24, 14], dtype=np.int64)
    assert best_fit(lengths, 100).max() + 1 == 4
    bins = pack_tightly(lengths, 100, 1, 0)
    assert bins.max() + 1 == fewest_packs(lengths, 100, 1) == 3
    assert np.bincount(bins, weights=lengths).max() <= 100


def test_longest_first_sorts_and_keeps_the_sequence_of_equal_lengths() -> None:
    lengths = np.array([3, 9, 3, 1, 9], dtype=np.int32)
    sequence = np.array([4, 2, 1, 0, 3], dtype=np.int64)
    assert longest_first(lengths, sequence).tolist() == [4, 1, 2, 0, 3]


def test_packs_reach_tokens_and_attention_at_once() -> None:
    lengths = np.repeat(np.array([400, 200, 100], dtype=np.int64), 40)
    loads, costs = np.zeros(10, dtype=np.int64), np.zeros(10, dtype=np.int64)
    levels = np.full(10, 2800, dtype=np.int64)
    packs = pack_towards(lengths, loads, costs, levels, np.full(10, float(np.square(lengths).sum()) / 10))
    assert (packs >= 0).all() and (loads == 2800).all()
    assert costs.max() - costs.min() <= 0.15 * costs.mean()


def test_scattered_room_is_gathered() -> None:
    lengths = np.array([10, 8, 6, 4], dtype=np.int64)
    packs = np.array([0, 1, 0, -1], dtype=np.int64)
    rooms = np.array([2, 2], dtype=np.int64)
    assert gather_room(lengths, packs, rooms)
    assert (packs >= 0).all() and (rooms >= 0).all() and rooms.sum() == 0


def test_water_levels() -> None:
    assert water_level(np.array([10.0, 0.0, 0.0]), 16.0) == 3.0
    loads, capacity = np.array([8, 0], dtype=np.int64), np.array([10, 10], dtype=np.int64)
    assert equal_fullness(loads, capacity, 4) == pytest.approx(0.4)
    assert equal_fullness(loads, capacity, 10) == pytest.approx(0.9)
