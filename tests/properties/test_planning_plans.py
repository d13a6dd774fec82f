"""Any lengths, packing groups and world sizes: a valid plan, or a sentence that says why there is none."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.errors import PlanError
from hbp_prep.planning.filling import fill
from hbp_prep.planning.kernels.anneal import anneal
from hbp_prep.planning.planner import make_plan, naive_baseline
from hbp_prep.planning.steps import order_of_steps, step_sizes
from hbp_prep.planning.strategies import STRATEGIES
from hbp_prep.planning.types import Curriculum, PlanSpec
from tests.unit.planning.building import COST, check_plan, samples, spec


@st.composite
def problems(draw: st.DrawFn) -> tuple[PlanSpec, list[int]]:
    world_size = draw(st.sampled_from([1, 2, 4, 8, 16]))
    degrees = [degree for degree in (1, 2, 4, 8, 16) if world_size % degree == 0]
    num_groups = draw(st.integers(1, 3))
    units = sorted(draw(st.lists(st.integers(1, 4000), min_size=num_groups, max_size=num_groups, unique=True)))
    rows = [(16 * unit, draw(st.sampled_from(degrees))) for unit in units]
    longest = rows[-1][0]
    near = [st.integers(max(1, length - 3), min(longest, length + 3)) for length, _ in rows]
    one_length = st.one_of(st.integers(1, longest), st.integers(1, min(longest, 200)), *near)
    lengths = draw(
        st.one_of(
            st.lists(one_length, min_size=1, max_size=120),
            st.builds(lambda length, count: [length] * count, one_length, st.integers(1, 120)),
        )
    )
    two_phase = num_groups > 1 and draw(st.booleans())
    return (
        spec(
            rows,
            world_size,
            strategy=draw(st.sampled_from(list(STRATEGIES))),
            order=draw(st.sampled_from(["stratified", "sorted", "random"])),
            micro_steps_per_step=draw(st.integers(1, 5)),
            epochs=draw(st.integers(1, 3)),
            seed=draw(st.integers(0, 2**63 - 1)),
            curriculum=Curriculum(kind="two_phase", first_phase_fraction=draw(st.floats(0, 1)))
            if two_phase
            else Curriculum(),
        ),
        lengths,
    )


@settings(deadline=None, max_examples=250)
@given(problems())
def test_a_plan_is_valid_or_says_why_there_is_none(problem: tuple[PlanSpec, list[int]]) -> None:
    settings_, lengths = problem
    data = samples(lengths)
    try:
        plan = make_plan(settings_, data, COST)
    except PlanError as error:
        assert "too few samples" in str(error)
        longest, dp_size = settings_.groups[-1], settings_.dp_size(len(settings_.groups) - 1)
        full_packs = 2 * max(1, sum(lengths) // longest.pack_length)
        assert len(lengths) < dp_size * (full_packs // dp_size + 2), "plenty of samples, and yet no plan"
        return
    check_plan(plan, data)
    for value in _numbers(plan.metrics):
        assert np.isfinite(value)


@settings(deadline=None, max_examples=60)
@given(problems())
def test_one_sample_per_rank_of_the_longest_group_is_enough(problem: tuple[PlanSpec, list[int]]) -> None:
    """As many samples as ranks that fit the longest packs one by one: there is always a plan."""
    settings_, lengths = problem
    dp_size = settings_.dp_size(len(settings_.groups) - 1)
    lengths = (lengths * dp_size)[:dp_size]
    if sum(lengths) > settings_.groups[-1].pack_length * dp_size:
        return
    data = samples(lengths)
    check_plan(make_plan(settings_, data, COST), data)


@settings(deadline=None, max_examples=60)
@given(problems())
def test_the_naive_baseline_uses_the_longest_group_only(problem: tuple[PlanSpec, list[int]]) -> None:
    settings_, lengths = problem
    data = samples(lengths)
    try:
        plan = naive_baseline(settings_, data, COST)
    except PlanError:
        return
    assert plan.spec.groups == settings_.groups[-1:]
    check_plan(plan, data)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 60), st.integers(1, 9))
def test_step_sizes_are_even(num_micro_steps: int, micro_steps_per_step: int) -> None:
    sizes = step_sizes(num_micro_steps, micro_steps_per_step).tolist()
    assert sum(sizes) == num_micro_steps
    assert len(sizes) == -(-num_micro_steps // micro_steps_per_step)
    if sizes:
        assert max(sizes) <= micro_steps_per_step and max(sizes) - min(sizes) <= 1


@settings(deadline=None, max_examples=150)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=3), st.integers(1, 6), st.integers(0, 99))
def test_stratified_steps_draw_once_from_every_stratum(counts: list[int], size: int, seed: int) -> None:
    group = np.repeat(np.arange(len(counts), dtype=np.int16), counts)
    steps = order_of_steps("stratified", group, size, np.random.default_rng(seed))
    assert sorted(np.concatenate(steps).tolist()) == list(range(len(group)))
    num_steps = len(steps)
    for step in steps:
        assert [member // num_steps for member in sorted(step.tolist())] == list(range(len(step)))
    for value, count in enumerate(counts):
        held = [int((group[step] == value).sum()) for step in steps]
        # At most two strata hold a part of the group, and each spreads its part evenly.
        assert max(held) - min(held) <= 2
        assert sum(held) == count


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(2, 5))
def test_annealing_never_makes_it_worse(seed: int, num_micro_steps: int, dp_size: int) -> None:
    rng = np.random.default_rng(seed)
    num_packs = num_micro_steps * dp_size
    lengths = np.sort(rng.integers(1, 1000, 6 * num_packs))
    costs = lengths.astype(np.float64) ** 2
    packs = rng.integers(0, num_packs, len(lengths))
    loads = np.bincount(packs, weights=lengths, minlength=num_packs)
    limits = np.full(num_packs, int(loads.mean()) + 200, dtype=np.int64)
    starts = np.arange(0, num_packs + 1, dp_size)
    moved = anneal(
        lengths=lengths,
        costs=costs,
        pack_of_item=packs,
        pack_cost=np.bincount(packs, weights=costs, minlength=num_packs),
        limits=limits,
        longest=np.full(num_packs, 1000, dtype=np.int64),
        starts=starts,
        num_moves=2000,
        hot=1e5,
        cold=1e2,
        variance_weight=0.0,
        seed=seed,
    )

    def paid(assignment: np.ndarray) -> float:
        of_pack = np.bincount(assignment, weights=costs, minlength=num_packs)
        return float(sum(dp_size * of_pack[a:b].max() for a, b in pairwise(starts)))

    assert paid(moved) <= paid(packs) * (1 + 1e-12)
    new_loads = np.bincount(moved, weights=lengths, minlength=num_packs)
    assert (new_loads <= np.maximum(limits, loads)).all()


@pytest.mark.parametrize("strategy", list(STRATEGIES))
@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200), st.integers(0, 9))
def test_every_strategy_packs_every_item_within_capacity(strategy: str, lengths: list[int], seed: int) -> None:
    array = np.array(lengths, dtype=np.int64)
    bins = STRATEGIES[strategy](array, 1000, np.random.default_rng(seed))
    loads = np.bincount(bins, weights=array)
    assert loads.max() <= 1000
    assert (loads > 0).all(), "numbered densely"


@settings(deadline=None, max_examples=100)
@given(problems())
def test_pack_counts_are_exact_multiples_of_the_dp_size(problem: tuple[PlanSpec, list[int]]) -> None:
    settings_, lengths = problem
    try:
        filled = fill(settings_, np.array(lengths, dtype=np.int32))
    except PlanError:
        return
    counts = np.bincount(filled.group_of_pack, minlength=len(settings_.groups))
    assert all(count % settings_.dp_size(index) == 0 for index, count in enumerate(counts.tolist()))


def _numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for each in value.values() for number in _numbers(each)]
    if isinstance(value, list):
        return [number for each in value for number in _numbers(each)]
    return [float(value)] if isinstance(value, (int, float)) else []
