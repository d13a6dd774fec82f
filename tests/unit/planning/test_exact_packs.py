"""The exact solver against brute force."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.planning.solvers.exact_packs import MAX_SAMPLES, pack_exactly


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(10, 60), min_size=1, max_size=7), st.integers(1, 3), st.integers(60, 130))
def test_it_finds_a_packing_exactly_where_there_is_one(lengths: list[int], num_packs: int, capacity: int) -> None:
    possible = any(
        np.bincount(assignment, weights=lengths, minlength=num_packs).max() <= capacity
        for assignment in product(range(num_packs), repeat=len(lengths))
    )
    found = pack_exactly(np.array(lengths, dtype=np.int64), num_packs, capacity, seed=0)
    assert (found is not None) == possible
    if found is not None:
        assert np.bincount(found, weights=lengths, minlength=num_packs).max() <= capacity
        assert len(found) == len(lengths)


def test_equal_questions_have_equal_answers() -> None:
    lengths = np.random.default_rng(0).integers(100, 600, 40)
    capacity = int(lengths.sum() / 12) + 60
    answers = [pack_exactly(lengths, 12, capacity, seed=3) for _ in range(2)]
    assert answers[0] is not None
    assert answers[0] == answers[1]


@pytest.mark.parametrize("num_samples", [MAX_SAMPLES + 1])
def test_large_questions_are_not_asked(num_samples: int) -> None:
    assert pack_exactly(np.ones(num_samples, dtype=np.int64), num_samples, 1, seed=0) is None
