"""The kernels against the textbook, in plain Python: the very same packs."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hbp_prep.planning.kernels.best_fit import best_fit, best_fit_into
from hbp_prep.planning.kernels.first_fit import first_fit
from hbp_prep.planning.kernels.next_fit import next_fit
from hbp_prep.planning.kernels.worst_fit import worst_fit_into
from hbp_prep.planning.strategies import STRATEGIES

MILLION = 2**20


def best_fit_reference(lengths: list[int], capacity: int) -> list[int]:
    """Scan all bins; among equally full ones the one that came to that residual last."""
    residuals: list[int] = []
    since: list[int] = []
    bins = []
    for turn, length in enumerate(lengths):
        fitting = [index for index, residual in enumerate(residuals) if residual >= length]
        if fitting:
            chosen = min(fitting, key=lambda index: (residuals[index], -since[index]))
        else:
            chosen = len(residuals)
            residuals.append(capacity)
            since.append(0)
        residuals[chosen] -= length
        since[chosen] = turn
        bins.append(chosen)
    return bins


def first_fit_reference(lengths: list[int], capacity: int) -> list[int]:
    residuals: list[int] = []
    bins = []
    for length in lengths:
        chosen = next((index for index, residual in enumerate(residuals) if residual >= length), len(residuals))
        if chosen == len(residuals):
            residuals.append(capacity)
        residuals[chosen] -= length
        bins.append(chosen)
    return bins


def next_fit_reference(lengths: list[int], capacity: int) -> list[int]:
    bins, number, room = [], 0, capacity
    for length in lengths:
        if length > room:
            number, room = number + 1, capacity
        room -= length
        bins.append(number)
    return bins


REFERENCES = {
    "best_fit": (best_fit, best_fit_reference),
    "first_fit": (first_fit, first_fit_reference),
    "next_fit": (next_fit, next_fit_reference),
}
DECREASING = {"ffd": first_fit_reference, "bfd": best_fit_reference}
SHUFFLED = {"ffs": first_fit_reference, "bfs": best_fit_reference, "random": next_fit_reference}

capacities = st.sampled_from([1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 16384, MILLION])


@st.composite
def packings(draw: st.DrawFn) -> tuple[list[int], int]:
    capacity = draw(capacities)
    length = st.one_of(st.integers(1, capacity), st.integers(1, max(1, capacity // 8)), st.just(max(1, capacity // 3)))
    return draw(st.lists(length, max_size=150)), capacity


@pytest.mark.parametrize("name", list(REFERENCES))
@settings(deadline=None, max_examples=200)
@example(([MILLION, 1, MILLION - 1, 1, 1, MILLION // 2, MILLION // 2], MILLION))
@given(packings())
def test_kernel_equals_the_textbook(name: str, packing: tuple[list[int], int]) -> None:
    lengths, capacity = packing
    kernel, reference = REFERENCES[name]
    assert kernel(np.array(lengths, dtype=np.int64), capacity).tolist() == reference(lengths, capacity)


@pytest.mark.parametrize("name", list(DECREASING))
@settings(deadline=None, max_examples=100)
@given(packings())
def test_decreasing_strategies_pack_the_longest_first(name: str, packing: tuple[list[int], int]) -> None:
    lengths, capacity = packing
    order = sorted(range(len(lengths)), key=lambda item: -lengths[item])
    expected = [0] * len(lengths)
    for item, bin_ in zip(order, DECREASING[name]([lengths[item] for item in order], capacity), strict=True):
        expected[item] = bin_
    given_rng = np.random.default_rng(0)
    assert STRATEGIES[name](np.array(lengths, dtype=np.int64), capacity, given_rng).tolist() == expected


@pytest.mark.parametrize("name", list(SHUFFLED))
@settings(deadline=None, max_examples=100)
@given(packings(), st.integers(0, 9))
def test_shuffled_strategies_pack_in_the_generators_order(name: str, packing: tuple[list[int], int], seed: int) -> None:
    lengths, capacity = packing
    order = np.random.default_rng(seed).permutation(len(lengths)).tolist()
    expected = [0] * len(lengths)
    for item, bin_ in zip(order, SHUFFLED[name]([lengths[item] for item in order], capacity), strict=True):
        expected[item] = bin_
    given_rng = np.random.default_rng(seed)
    assert STRATEGIES[name](np.array(lengths, dtype=np.int64), capacity, given_rng).tolist() == expected


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=20), st.lists(st.integers(1, 300), max_size=60))
def test_best_fit_into_equals_the_textbook(rooms: list[int], lengths: list[int]) -> None:
    left = list(rooms)
    found = best_fit_into(np.array(lengths, dtype=np.int64), np.array(rooms, dtype=np.int64)).tolist()
    for length, bin_ in zip(lengths, found, strict=True):
        fitting = [room for room in left if room >= length]
        if bin_ < 0:
            assert not fitting
        else:
            assert left[bin_] == min(fitting)
            left[bin_] -= length


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=20),
    st.lists(st.integers(1, 400), max_size=60),
    st.integers(1, 400),
)
def test_worst_fit_equals_the_textbook(loads: list[int], lengths: list[int], level: int) -> None:
    capacity = 400
    after = np.array(loads, dtype=np.int64)
    found = worst_fit_into(np.array(lengths, dtype=np.int64), after, level, capacity).tolist()
    for length, bin_ in zip(lengths, found, strict=True):
        emptiest = min(loads)
        fits = emptiest + length <= (level if emptiest else capacity)
        assert (bin_ >= 0) == fits
        if fits:
            assert loads[bin_] == emptiest
            loads[bin_] += length
    assert after.tolist() == loads


def test_isf_accepts_only_nearly_full_packs_before_the_last_round() -> None:
    lengths = np.random.default_rng(1).integers(20, 900, 4000)
    loads = np.bincount(STRATEGIES["isf"](lengths, 4096, np.random.default_rng(0)), weights=lengths)
    assert (loads >= 4096 - 32).mean() > 0.97
    assert len(loads) < 1.01 * lengths.sum() / 4096
    next_fit_loads = np.bincount(STRATEGIES["random"](lengths, 4096, np.random.default_rng(0)), weights=lengths)
    assert (next_fit_loads >= 4096 - 32).mean() < 0.3
