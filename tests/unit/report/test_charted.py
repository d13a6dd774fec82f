"""The arrays behind the charts, against plain Python."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.report.charted import MAX_POINTS, MAX_SOURCES, LengthHistogram, cost_bands, fill_histogram
from hbp_prep.report.tables import duration, percent, short_count


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 11)), min_size=1, max_size=60))
def test_length_histogram_counts_every_sample_once_between_its_edges(rows):
    lengths = np.array([length for length, _ in rows])
    source = np.array([index for _, index in rows])
    names = tuple(f"s{index}" for index in range(12))
    histogram = LengthHistogram.of(lengths, source, names)
    assert histogram.num_samples.sum() == len(rows)
    assert histogram.num_tokens.sum() == lengths.sum()
    assert len(histogram.names) == MAX_SOURCES + 1
    totals = {name: sum(length for length, index in rows if names[index] == name) for name in names}
    largest = sorted(names, key=lambda name: (-totals[name], names.index(name)))[:MAX_SOURCES]
    assert set(histogram.names[:-1]) == set(largest)
    for name, tokens in zip(histogram.names[:-1], histogram.num_tokens.sum(axis=1), strict=False):
        assert tokens == totals[name]
    for bar in range(len(histogram.edges) - 1):
        low, high = histogram.edges[bar] * (1 + 1e-9), histogram.edges[bar + 1] * (1 + 1e-9)
        inside = [length for length, _ in rows if low < length <= high]
        assert histogram.num_samples[:, bar].sum() == len(inside)


def test_a_full_pack_is_in_the_last_bar():
    histogram = fill_histogram("x", np.array([0.01, 0.5, 0.999, 1.0]))
    assert histogram.share.tolist() == [0.25] + [0.0] * 9 + [0.25] + [0.0] * 8 + [0.5]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 1500), st.integers(0, 2**32 - 1))
def test_cost_bands(num_micro_steps, seed):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, num_micro_steps)
    sizes = np.array([4, 2])[group]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    costs = rng.integers(1, 1000, offsets[-1])
    ranks = [costs[start:stop] for start, stop in pairwise(offsets)]
    bands = cost_bands(costs, offsets, group, ("a", "b"))
    assert sum(len(band.position) for band in bands) <= MAX_POINTS + 2
    seen = []
    for band in bands:
        index = ("a", "b").index(band.group)
        micro_steps = np.round(band.position * num_micro_steps - 0.5).astype(int)
        seen += micro_steps.tolist()
        for point, micro_step in enumerate(micro_steps):
            assert group[micro_step] == index
            own = ranks[micro_step]
            assert (band.lowest[point], band.highest[point]) == (own.min(), own.max())
            assert np.isclose(band.mean[point], own.mean())
        worst = max((own.max() / own.mean() for own, kind in zip(ranks, group, strict=True) if kind == index))
        assert np.isclose((band.highest / band.mean).max(), worst)  # the worst one is never left out
    assert len(set(seen)) == len(seen)
    if num_micro_steps <= MAX_POINTS // 2:
        assert len(seen) == num_micro_steps


def test_units():
    assert [duration(hours) for hours in (0.001, 0.05, 3.0, 60.0)] == ["3.6 s", "3.0 min", "3.0 h", "2.5 days"]
    assert [percent(value) for value in (0.0, 0.0021, 0.5)] == ["0.0%", "0.210%", "50.0%"]
    counts = [short_count(value) for value in (0, 9_999, 10_000, 620_152, 2_334_705, 1_000_000_000)]
    assert counts == ["0", "9,999", "10.0k", "620k", "2.33M", "1.00G"]
