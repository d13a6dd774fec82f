"""The arrays behind the charts: length histogram, fill of packs, attention cost along the schedule."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_FILL_BARS = 20
BARS_PER_OCTAVE = 2
MAX_POINTS = 500
MAX_SOURCES = 7


@dataclass(frozen=True, kw_only=True)
class LengthHistogram:
    """Samples and tokens by length and source.

    Attributes:
        edges: float64[B + 1], tokens; bar b holds lengths above ``edges[b]`` up to and with ``edges[b + 1]``, so that
            a full pack's length lies left of its border. Two bars per doubling.
        names: S names; where there are many sources, the smaller ones are one.
        num_samples, num_tokens: int64[S, B].
    """

    edges: NDArray[np.float64]
    names: tuple[str, ...]
    num_samples: NDArray[np.int64]
    num_tokens: NDArray[np.int64]

    @classmethod
    def of(
        cls, lengths: NDArray[np.int64], source: NDArray[np.int64], source_names: tuple[str, ...]
    ) -> "LengthHistogram":
        """Count samples of int64[N] ``lengths`` (each at least 1) and ``source``."""
        names, source = _largest_sources(lengths, source, source_names)
        bar = np.ceil(np.log2(lengths) * BARS_PER_OCTAVE - 1e-9).astype(np.int64) - 1
        first, num_bars = int(bar.min()), int(bar.max() - bar.min()) + 1
        cell = source * num_bars + (bar - first)
        shape = (len(names), num_bars)
        size = len(names) * num_bars
        return cls(
            edges=2.0 ** ((first + np.arange(num_bars + 1)) / BARS_PER_OCTAVE),
            names=names,
            num_samples=np.bincount(cell, minlength=size).reshape(shape),
            num_tokens=np.bincount(cell, weights=lengths, minlength=size).astype(np.int64).reshape(shape),
        )


def _largest_sources(
    lengths: NDArray[np.int64], source: NDArray[np.int64], names: tuple[str, ...]
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The sources with most tokens by name, all others as one."""
    if len(names) <= MAX_SOURCES + 1:
        return names, source
    tokens = np.bincount(source, weights=lengths, minlength=len(names))
    kept = np.sort(np.argsort(-tokens, kind="stable")[:MAX_SOURCES])
    translation = np.full(len(names), MAX_SOURCES)
    translation[kept] = np.arange(MAX_SOURCES)
    others = f"{len(names) - MAX_SOURCES} other sources"
    return (*(names[index] for index in kept), others), translation[source]


@dataclass(frozen=True, kw_only=True)
class FillHistogram:
    """``share``: float64[20], share of packs whose fill is in each twentieth, the last one including full packs."""

    label: str
    num_packs: int
    share: NDArray[np.float64]


def fill_histogram(label: str, fill: NDArray[np.float64]) -> FillHistogram:
    """Histogram of float64[P] ``fill``, each above 0 and at most 1."""
    bar = np.minimum((fill * NUM_FILL_BARS).astype(np.int64), NUM_FILL_BARS - 1)
    counts = np.bincount(bar, minlength=NUM_FILL_BARS)
    return FillHistogram(label=label, num_packs=len(fill), share=counts / max(len(fill), 1))


@dataclass(frozen=True, kw_only=True)
class CostBand:
    """Attention cost per DP rank of V chosen micro-steps of one packing group.

    Attributes:
        position: float64[V], where in the schedule, 0 to 1.
        lowest, mean, highest: float64[V], over the micro-step's DP ranks.
    """

    group: str
    position: NDArray[np.float64]
    lowest: NDArray[np.float64]
    mean: NDArray[np.float64]
    highest: NDArray[np.float64]


def cost_bands(
    costs: NDArray[np.float64] | NDArray[np.int64],
    offsets: NDArray[np.int64],
    group: NDArray[np.int64],
    group_names: tuple[str, ...],
) -> tuple[CostBand, ...]:
    """One band per packing group that is used; together at most ``MAX_POINTS`` points, or one more per group.

    Micro-steps are never merged (that would blur those of unlike cost): where there are too many, each stretch of the
    schedule shows the one that is balanced worst.

    Args:
        costs: One per assignment.
        offsets: int64[U + 1]; micro-step u has the costs from ``offsets[u]`` to ``offsets[u + 1]``.
        group: int64[U], indices into ``group_names``.
    """
    starts = offsets[:-1]
    lowest = np.minimum.reduceat(costs, starts).astype(np.float64)
    highest = np.maximum.reduceat(costs, starts).astype(np.float64)
    mean = np.add.reduceat(costs, starts) / np.diff(offsets)
    num_micro_steps = len(starts)
    bands = []
    for index, name in enumerate(group_names):
        of_group = np.flatnonzero(group == index)
        if not len(of_group):
            continue
        num_points = max(1, MAX_POINTS * len(of_group) // num_micro_steps)
        chosen = _worst_of_stretches(of_group, highest / np.maximum(mean, 1.0), num_points)
        bands.append(
            CostBand(
                group=name,
                position=(chosen + 0.5) / num_micro_steps,
                lowest=lowest[chosen],
                mean=mean[chosen],
                highest=highest[chosen],
            )
        )
    return tuple(bands)


def _worst_of_stretches(
    indices: NDArray[np.int64], imbalance: NDArray[np.float64], num_points: int
) -> NDArray[np.int64]:
    """All ``indices`` where they are few enough, else of each of ``num_points`` stretches the most imbalanced one."""
    if len(indices) <= num_points:
        return indices
    stretches = np.array_split(indices, num_points)
    return np.array([stretch[np.argmax(imbalance[stretch])] for stretch in stretches])
