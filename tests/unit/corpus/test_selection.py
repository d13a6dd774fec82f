import numpy as np
import pytest

from hbp_prep.corpus.selection import row_repeats
from hbp_prep.errors import ConfigError


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_weight_must_be_a_number_above_zero(weight):
    with pytest.raises(ConfigError, match="source 'chats': weight is"):
        row_repeats(10, weight=weight, limit=None, seed=0, source_name="chats")


def test_limit_and_repeats_have_bounds():
    with pytest.raises(ConfigError, match="limit is 0"):
        row_repeats(10, weight=1, limit=0, seed=0, source_name="chats")
    with pytest.raises(ConfigError, match="over 65,535 times"):
        row_repeats(10, weight=65_535.1, limit=None, seed=0, source_name="chats")
    assert row_repeats(10, weight=65_535, limit=None, seed=0, source_name="chats").min() == 65_535
    assert row_repeats(10, weight=1e300, limit=25, seed=0, source_name="chats").sum() == 25


def test_every_row_is_as_likely():
    counts = np.zeros(10, np.int64)
    for seed in range(1000):
        counts += row_repeats(10, weight=0.5, limit=None, seed=seed, source_name="chats")
    assert counts.sum() == 5000
    assert 430 < counts.min() <= counts.max() < 570  # 500, give or take 4.4 standard deviations


def test_the_draw_is_pinned():
    """A change here changes every prepared folder with a fractional weight."""
    drawn = row_repeats(12, weight=0.25, limit=None, seed=7, source_name="tulu3")
    assert np.flatnonzero(drawn).tolist() == [4, 6, 9]
    assert np.flatnonzero(row_repeats(12, weight=0.25, limit=None, seed=7, source_name="other")).tolist() != [4, 6, 9]
    assert np.flatnonzero(row_repeats(12, weight=0.25, limit=None, seed=8, source_name="tulu3")).tolist() != [4, 6, 9]
