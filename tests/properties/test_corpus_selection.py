import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.corpus.selection import row_repeats


@given(
    num_rows=st.integers(0, 300),
    weight=st.floats(1e-3, 20),
    limit=st.none() | st.integers(1, 400),
    seed=st.integers(0, 2**63),
    source_name=st.text(max_size=8),
)
@settings(deadline=None, max_examples=300)
def test_repeats_sum_to_the_target_and_differ_by_one_at_most(num_rows, weight, limit, seed, source_name):
    repeats = row_repeats(num_rows, weight=weight, limit=limit, seed=seed, source_name=source_name)
    assert repeats.dtype == np.uint16
    assert repeats.shape == (num_rows,)
    target = round(weight * num_rows)
    assert repeats.sum(dtype=np.int64) == (target if limit is None else min(target, limit))
    if num_rows:
        assert repeats.max() - repeats.min() <= 1
    again = row_repeats(num_rows, weight=weight, limit=limit, seed=seed, source_name=source_name)
    assert np.array_equal(repeats, again)
