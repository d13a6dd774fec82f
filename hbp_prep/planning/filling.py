"""GreedyFill with exact pack counts: from samples to packs, a positive multiple of the DP size in each packing group.

Packing groups are packed longest first. A group takes the fewest micro-steps that hold its own samples, spreads them
evenly over its packs, and is then filled with a random draw of the smaller groups' samples up to the level at which
all micro-steps hold equal shares of their capacity. What is left goes on to the next group. So no sample is dropped, no
micro-step is partial, and the number of micro-steps is the least that holds everything (or one more, where the strategy
wastes more than the slack).

A group that has fewer samples than packs keeps what fills whole micro-steps; the rest goes up into the next longer
group. Cost: about 0.4 s for 1M samples.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hbp_prep.errors import PlanError
from hbp_prep.planning.even_packs import pack_evenly
from hbp_prep.planning.grouping import group_of_samples
from hbp_prep.planning.kernels.worst_fit import worst_fit_into
from hbp_prep.planning.randomness import generator
from hbp_prep.planning.strategies import STRATEGIES
from hbp_prep.planning.tight_packs import fewest_packs, pack_tightly
from hbp_prep.planning.types import Int16, Int32, Int64, PlanSpec

FILL_ROUNDS = 6
"""Draws per packing group; each takes what the one before could not place."""


@dataclass(frozen=True, kw_only=True)
class Filled:
    """Samples in packs.

    Attributes:
        pack_of_sample: int64[N].
        group_of_pack: int16[P], ascending; the number of packs of every group is a multiple of its DP size.
    """

    pack_of_sample: Int64
    group_of_pack: Int16


class _TooFewSamples(Exception):
    """A packing group has fewer samples than packs to fill."""

    def __init__(self, group: int, num_samples: int, num_packs: int, widest: Int64) -> None:
        super().__init__()
        self.group, self.num_samples, self.num_packs, self.widest = group, num_samples, num_packs, widest


def fill(spec: PlanSpec, num_tokens: Int32) -> Filled:
    """Put every sample into one pack.

    Args:
        spec: Packing groups, world size, strategy and seed.
        num_tokens: int32[N], each 1 .. the longest packing length, at least one sample.

    Raises:
        PlanError: there are too few samples for the longest packing group's data-parallel ranks.
    """
    return _Filling(spec, num_tokens).run()


class _Filling:
    """The state of one call of :func:`fill`: which group samples belong to, and which groups' packs are settled."""

    def __init__(self, spec: PlanSpec, num_tokens: Int32) -> None:
        self.spec = spec
        self.lengths = num_tokens.astype(np.int64)
        self.group = group_of_samples(num_tokens, spec.groups).astype(np.int64)
        self.settled: dict[int, Int64] = {}  # by group: int64[N], the pack of each of its samples, -1 elsewhere

    def run(self) -> Filled:
        """Try; where a group has too few samples send some of its samples up and try again."""
        while True:
            try:
                return self._number_packs(self._pack_groups())
            except _TooFewSamples as few:
                self._settle(few)

    def _pack_groups(self) -> list[Int64]:
        """Per packing group int64[N]: the pack of each sample, -1 where the sample is in another group."""
        packs = [np.full(len(self.lengths), -1, dtype=np.int64) for _ in self.spec.groups]
        free = np.ones(len(self.lengths), dtype=bool)
        for group, bins in self.settled.items():
            packs[group] = bins
            free &= self.group != group
        for group in reversed(range(len(self.spec.groups))):
            if group not in self.settled and (own := np.flatnonzero(free & (self.group == group))).size:
                packs[group] = self._pack_group(group, own, free)
                free &= packs[group] < 0
        return packs

    def _pack_group(self, group: int, own: Int64, free: NDArray[np.bool_]) -> Int64:
        """Pack ``own`` samples, then fill up with smaller ``free`` ones."""
        dp_size, capacity = self.spec.dp_size(group), self.spec.groups[group].pack_length
        widest = self._pack_own(group, own)
        num_packs = -(-(int(widest.max()) + 1) // dp_size) * dp_size
        packs = np.full(len(self.lengths), -1, dtype=np.int64)
        packs[own] = pack_evenly(
            self.lengths[own], num_packs, capacity, lambda x, c: self._strategy(group, x, c), widest
        )
        loads = np.bincount(packs[own], weights=self.lengths[own], minlength=num_packs).astype(np.int64)
        level = self._level(group, num_packs, free)
        rng = generator(self.spec.seed, "fill", group)
        pool = np.flatnonzero(free & (self.group < group))
        for _ in range(FILL_ROUNDS):
            pool = self._fill_once(packs, loads, level, capacity, pool, rng)
            if not pool.size:
                break
        if not loads.all():
            raise _TooFewSamples(group, int((packs >= 0).sum()), num_packs, _scatter(widest, own, len(packs)))
        return packs

    def _fill_once(
        self, packs: Int64, loads: Int64, level: int, capacity: int, pool: Int64, rng: np.random.Generator
    ) -> Int64:
        """Draw from ``pool`` as much as there is room, place what fits; returns the samples still free that may fit."""
        num_empty = int((loads == 0).sum())
        longest = capacity if num_empty else level - int(loads.min())
        pool = rng.permutation(pool[self.lengths[pool] <= longest])
        room = int(np.maximum(level - loads, 0).sum())
        num_drawn = max(int(np.searchsorted(np.cumsum(self.lengths[pool]), room, side="right")), num_empty)
        drawn = pool[:num_drawn]
        drawn = drawn[np.argsort(-self.lengths[drawn], kind="stable")]
        packs[drawn] = worst_fit_into(self.lengths[drawn], loads, level, capacity)
        return pool[packs[pool] < 0]

    def _level(self, group: int, num_packs: int, free: NDArray[np.bool_]) -> int:
        """Tokens per pack at which this group and all smaller ones, still to be packed, are equally full."""
        tokens = int(self.lengths[free].sum())
        capacity = num_packs * self.spec.groups[group].pack_length
        smaller = [other for other in reversed(range(group)) if other not in self.settled]
        for other in smaller:
            last = other == smaller[-1]
            needed = tokens - capacity if last else int(self.lengths[free & (self.group == other)].sum())
            of_micro_step = self.spec.dp_size(other) * self.spec.groups[other].pack_length
            capacity += max(0, -(-needed // of_micro_step)) * of_micro_step
        return min(-(-tokens * self.spec.groups[group].pack_length // capacity), self.spec.groups[group].pack_length)

    def _strategy(self, group: int, lengths: Int64, capacity: int) -> Int64:
        return STRATEGIES[self.spec.strategy](lengths, capacity, generator(self.spec.seed, "pack", group))

    def _pack_own(self, group: int, own: Int64) -> Int64:
        """Pack a group's own samples at its full length, tightly where the strategy needs a longer micro-step more."""
        dp_size, capacity = self.spec.dp_size(group), self.spec.groups[group].pack_length
        lengths = self.lengths[own]
        packed = self._strategy(group, lengths, capacity)
        if group and packed.max() >= fewest_packs(lengths, capacity, dp_size):
            tight = pack_tightly(lengths, capacity, dp_size, self.spec.seed)
            if tight.max() // dp_size < packed.max() // dp_size:
                packed = tight
        return packed

    def _settle(self, few: _TooFewSamples) -> None:
        """Keep the whole micro-steps of a group that has too few samples; its other samples go to the next longer one.

        Raises:
            PlanError: it is the longest group, and no smaller group can give up a micro-step.
        """
        if few.group < len(self.spec.groups) - 1:
            self.settled[few.group] = few.widest
            self._keep_fullest(few.group, few.num_packs - self.spec.dp_size(few.group))
            return
        for group in sorted(self.settled, reverse=True):
            num_packs = int(self.settled[group].max()) + 1
            if num_packs:
                self._keep_fullest(group, num_packs - self.spec.dp_size(group))
                return
        raise _plan_error(self.spec, few, len(self.lengths))

    def _keep_fullest(self, group: int, num_packs: int) -> None:
        bins = self.settled[group]
        inside = bins >= 0
        loads = np.bincount(bins[inside], weights=self.lengths[inside])
        rank = np.empty(len(loads), dtype=np.int64)
        rank[np.argsort(-loads, kind="stable")] = np.arange(len(loads))
        kept = np.where(inside, rank[bins], num_packs)
        self.settled[group] = np.where(kept < num_packs, kept, -1)
        longer = next(other for other in range(group + 1, len(self.spec.groups)) if other not in self.settled)
        self.group[(self.group == group) & (kept >= num_packs)] = longer

    def _number_packs(self, packs: list[Int64]) -> Filled:
        pack_of_sample = np.full(len(self.lengths), -1, dtype=np.int64)
        num_packs = [int(bins.max()) + 1 for bins in packs]
        for bins, first in zip(packs, np.cumsum([0, *num_packs]), strict=False):
            inside = bins >= 0
            pack_of_sample[inside] = bins[inside] + first
        group_of_pack = np.repeat(np.arange(len(packs), dtype=np.int16), num_packs)
        return Filled(pack_of_sample=pack_of_sample, group_of_pack=group_of_pack)


def _scatter(values: Int64, positions: Int64, size: int) -> Int64:
    spread = np.full(size, -1, dtype=np.int64)
    spread[positions] = values
    return spread


def _plan_error(spec: PlanSpec, few: _TooFewSamples, num_samples: int) -> PlanError:
    group, dp_size = spec.groups[few.group], spec.dp_size(few.group)
    return PlanError(
        f"too few samples: packing group {group.name} needs {few.num_packs} packs ({few.num_packs // dp_size} "
        f"micro-steps x {dp_size} data-parallel ranks), each with a sample, and {few.num_samples} of the "
        f"{num_samples} samples are there for it; use fewer GPUs, a higher sp_degree, or more data"
    )
