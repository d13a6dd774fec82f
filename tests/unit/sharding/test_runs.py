"""Cutting into runs: nothing lost, limits kept, no run that could have been longer."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.sharding.runs import cut_runs


@given(sizes=st.lists(st.integers(0, 50), max_size=60), limit=st.integers(1, 80))
@settings(deadline=None, max_examples=200)
def test_runs(sizes, limit):
    runs = cut_runs(sizes, limit)
    assert [index for start, stop in runs for index in range(start, stop)] == list(range(len(sizes)))
    for start, stop in runs:
        assert stop == start + 1 or sum(sizes[start:stop]) <= limit
        assert stop == len(sizes) or sum(sizes[start : stop + 1]) > limit
