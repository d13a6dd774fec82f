"""Rebalancing lowers the waste; its annealing, on tiny cases, comes to the best there is."""

from itertools import product

import numpy as np
import pytest

from hbp_prep.planning.filling import Filled, fill
from hbp_prep.planning.kernels.anneal import anneal
from hbp_prep.planning.rebalance import rebalance
from hbp_prep.planning.types import PlanSpec
from tests.unit.planning.building import spec


def waste(settings: PlanSpec, lengths: np.ndarray, filled: Filled) -> tuple[float, float]:
    """(work for which ranks wait, all work paid for) once packs are sorted into micro-steps."""
    cost = np.bincount(filled.pack_of_sample, weights=lengths.astype(float) ** 2)
    paid = 0.0
    for group in range(len(settings.groups)):
        own = np.sort(cost[filled.group_of_pack == group]).reshape(-1, settings.dp_size(group))
        paid += own.max(axis=1, initial=0).sum() * settings.dp_size(group)
    return paid - cost.sum(), paid


def mixed(num_fluid: int = 6000) -> np.ndarray:
    """Short chats, middling ones, and long samples none of which towers over the others."""
    rng = np.random.default_rng(1)
    parts = (
        rng.lognormal(5.5, 1.0, num_fluid).clip(8, 1024),
        rng.integers(1025, 4096, 400),
        rng.lognormal(9.8, 0.6, 135).clip(4097, 65_536),
    )
    return np.concatenate(parts).astype(np.int32)


@pytest.mark.parametrize(("world_size", "at_most"), [(8, 0.01), (16, 0.03), (32, 0.08)])
def test_waste_falls(world_size: int, at_most: float) -> None:
    lengths = mixed()
    settings = spec([(4096, 1), (131_072, 4)], world_size)
    before = fill(settings, lengths)
    after = rebalance(settings, lengths, before)
    assert (np.bincount(after.group_of_pack) == np.bincount(before.group_of_pack)).all()
    (wasted, paid), (wasted_before, _) = waste(settings, lengths, after), waste(settings, lengths, before)
    assert wasted < 0.5 * wasted_before
    assert wasted / paid < at_most


def test_waste_falls_where_there_are_no_short_samples() -> None:
    lengths = mixed(num_fluid=0)
    settings = spec([(4096, 1), (131_072, 4)], 8)
    before = fill(settings, lengths)
    after = rebalance(settings, lengths, before)
    assert waste(settings, lengths, after)[0] < 0.7 * waste(settings, lengths, before)[0]
    fullest = [np.bincount(filled.pack_of_sample, weights=lengths).max() for filled in (before, after)]
    assert fullest[1] <= fullest[0]


def test_tokens_stay_even() -> None:
    lengths = mixed()
    settings = spec([(4096, 1), (131_072, 4)], 16)
    filled = rebalance(settings, lengths, fill(settings, lengths))
    loads = np.bincount(filled.pack_of_sample, weights=lengths)
    for group in (0, 1):
        own = loads[filled.group_of_pack == group]
        assert own.max() <= settings.groups[group].pack_length
        assert own.mean() / own.max() > 0.99


@pytest.mark.parametrize("seed", range(8))
def test_annealing_reaches_the_optimum_of_tiny_cases(seed: int) -> None:
    """Seven samples in two micro-steps of two packs, against every assignment there is."""
    rng = np.random.default_rng(seed)
    lengths = np.sort(rng.integers(100, 1000, 7))
    costs = lengths.astype(np.float64) ** 2
    limit = int(1.3 * lengths.sum() / 4) + 300

    def paid(packs: np.ndarray) -> float:
        cost = np.bincount(packs, weights=costs, minlength=4)
        return 2 * max(cost[:2]) + 2 * max(cost[2:])

    feasible = [
        packs
        for packs in map(np.array, product(range(4), repeat=7))
        if np.bincount(packs, weights=lengths, minlength=4).max() <= limit
    ]
    start = feasible[int(rng.integers(len(feasible)))]
    moved = anneal(
        lengths=lengths,
        costs=costs,
        pack_of_item=start,
        pack_cost=np.bincount(start, weights=costs, minlength=4),
        limits=np.full(4, limit),
        longest=np.full(4, 1000),
        starts=np.array([0, 2, 4]),
        num_moves=100_000,
        hot=1e6,
        cold=1e2,
        variance_weight=0.0,
        seed=seed,
    )
    assert np.bincount(moved, weights=lengths, minlength=4).max() <= limit
    assert paid(moved) == min(map(paid, feasible))


def test_perfect_packs_are_left_alone() -> None:
    settings = spec([(2000, 1)], 4)
    lengths = np.full(8, 2000, dtype=np.int32)
    filled = fill(settings, lengths)
    assert rebalance(settings, lengths, filled) is filled
