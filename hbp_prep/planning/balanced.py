"""The strategy ``balanced``: packs filled towards a token level and an attention target at once.

Heavy samples set the target of the micro-step that they lead; all other packs of a packing group share one target, as
water finds its level. Longer groups come first: their own samples are placed, then their packs take part, as all others
do, in one joint filling from the longest sample to the shortest (:mod:`hbp_prep.planning.kernels.two_dimensional`); the
shortest close the gaps by best fit. Cost: O(N log P) for N samples in P packs, 60 bytes per sample.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from hbp_prep.planning.filling import Filled
from hbp_prep.planning.kernels.best_fit import best_fit_into
from hbp_prep.planning.kernels.by_length import longest_first
from hbp_prep.planning.kernels.exchange import gather_room
from hbp_prep.planning.kernels.two_dimensional import pack_towards
from hbp_prep.planning.layouts import Layout, make_layout, own_slices
from hbp_prep.planning.randomness import generator
from hbp_prep.planning.tight_packs import pack_tightly
from hbp_prep.planning.types import Float64, Int32, Int64, PlanSpec

LIGHT_SHARE = 0.5
"""The room beside a heavy sample is counted at the mean length of the shortest samples with this share of tokens."""

LEAST_SLACK = 1 / 1024
"""Less free room than this share is not spread over all packs: it could not be met exactly by any."""

GAP_TOKENS = 256
"""Samples of at most this length close gaps."""

EXCHANGED_TOKENS = 4 * GAP_TOKENS
"""Samples of at most this length change places where the last ones find no gap."""


def balanced(
    spec: PlanSpec, num_tokens: Int32, routed: Sequence[float] = (1.0,), extra: Sequence[int] = (0,)
) -> Iterator[Filled]:
    """Fill all packing groups together, once for each layout.

    Args:
        spec: Packing groups, world size and seed.
        num_tokens: int32[N], each 1 .. the longest packing length, at least one sample.
        routed: Longest sample of a group as a share of its packing length; longer ones go to a longer group.
        extra: Micro-steps of every longer group beside the fewest that hold its samples.

    Yields:
        Every sample in one pack, none empty or over its length, whole micro-steps. A layout that cannot be filled so
        is left out.
    """
    order = longest_first(num_tokens, generator(spec.seed, "ties").permutation(len(num_tokens)))
    lengths = num_tokens[order].astype(np.int64)
    seen: list[Int64] = []
    for share in routed:
        longest = np.array([group.pack_length for group in spec.groups], dtype=np.int64)
        longest[:-1] = (longest[:-1] * share).astype(np.int64)
        slices = own_slices(lengths, longest)
        if any((slices == other).all() for other in seen):
            continue
        seen.append(slices)
        tight = [_own_packs(spec, group, lengths[slices[group + 1] : slices[group]]) for group in range(len(longest))]
        fewest = np.array([bins.max(initial=-1) + 1 for bins in tight], dtype=np.int64)
        for more in extra:
            layout = make_layout(spec, lengths, longest, fewest, more)
            packs = _Packing(spec, layout, lengths, tight).run()
            if packs is not None:
                pack_of_sample = np.empty(len(packs), dtype=np.int64)
                pack_of_sample[order] = packs
                group_of_pack = np.repeat(np.arange(len(longest), dtype=np.int16), layout.num_packs)
                yield Filled(pack_of_sample=pack_of_sample, group_of_pack=group_of_pack)


def _own_packs(spec: PlanSpec, group: int, own: Int64) -> Int64:
    """A packing of a longer group's own samples that surely fits; none for the shortest group, whose packs follow."""
    if not group or not own.size:
        return np.empty(0, dtype=np.int64)
    return pack_tightly(own, spec.groups[group].pack_length, spec.dp_size(group), spec.seed)


class _Packing:
    """The state of one filling. Samples are numbered from the longest; ``tight`` is a safe packing by group."""

    def __init__(self, spec: PlanSpec, layout: Layout, lengths: Int64, tight: list[Int64]) -> None:
        self.spec, self.layout, self.lengths, self.tight = spec, layout, lengths, tight
        self.starts = layout.group_starts()
        self.slices = own_slices(lengths, layout.longest)
        num_packs = int(self.starts[-1])
        self.pack = np.full(len(lengths), -1, dtype=np.int64)
        self.loads = np.zeros(num_packs, dtype=np.int64)
        self.costs = np.zeros(num_packs, dtype=np.int64)
        self.targets = np.zeros(num_packs)
        capacity = np.array([group.pack_length for group in spec.groups], dtype=np.int64)
        self.capacity = np.repeat(capacity, layout.num_packs)
        self.levels = self.capacity
        fluid = lengths[self.slices[1] :].astype(np.float64)
        self.density = float(np.square(fluid).sum() / fluid.sum()) if fluid.size else 0.0
        light = fluid[::-1]
        light = light[: int(np.searchsorted(np.cumsum(light), LIGHT_SHARE * light.sum())) + 1]
        self.light = float(np.square(light).sum() / light.sum()) if light.size else 0.0

    def run(self) -> Int64 | None:
        for group in reversed(range(1, len(self.spec.groups))):
            self._place_own(group)
        self._share_room()
        for group in range(1, len(self.spec.groups)):
            if self.layout.num_packs[group]:
                self._retarget(group)
        self._lead_shortest()
        bulk = np.flatnonzero(self.pack < 0)
        bulk = bulk[self.lengths[bulk] > GAP_TOKENS]
        self._towards(bulk, slice(0, len(self.loads)), self.levels)
        self._close_gaps()
        if (self.pack < 0).any() or not np.bincount(self.pack, minlength=len(self.loads)).all():
            return None
        return self.pack

    def _place_own(self, group: int) -> None:
        """Place a longer group's own samples; where balance leaves one without a place, by the tight packing."""
        packs = slice(self.starts[group], self.starts[group + 1])
        own = np.arange(self.slices[group + 1], self.slices[group])
        if not own.size:
            return
        loads, costs = self.loads.copy(), self.costs.copy()
        self._lead(group, own)
        self._towards(own[self.pack[own] < 0], packs, self.capacity)
        self._best_fit(own[self.pack[own] < 0], slice(self.starts[group], len(self.loads)), self.capacity)
        if (self.pack[own] < 0).any():
            self.loads, self.costs = loads, costs
            self._put(own, packs.start + self.tight[group])

    def _share_room(self) -> None:
        """Levels at which all packs are equally full, where their own samples allow it, and hold what is left."""
        left = int(self.lengths[self.pack < 0].sum())
        fullness = equal_fullness(self.loads, self.capacity, left)
        if fullness > 1 - LEAST_SLACK:
            fullness = 1.0
        self.levels = np.minimum(self.capacity, np.floor(fullness * self.capacity).astype(np.int64))

    def _lead(self, group: int, own: Int64) -> None:
        """Let the heavy ones of ``own`` lead the first packs of a group, and set the targets of all its packs."""
        packs = slice(self.starts[group], self.starts[group + 1])
        dp_size, level = self.spec.dp_size(group), float(self.layout.levels[group])
        lengths = self.lengths[own].astype(np.float64)
        num_steps = (packs.stop - packs.start) // dp_size
        leaders = np.zeros(num_steps)
        first = lengths[::dp_size][:num_steps]
        leaders[: len(first)] = first
        floors = np.where(leaders > 0, np.square(leaders) + np.maximum(level - leaders, 0) * self.light, 0.0)
        room = max(0.0, level * (packs.stop - packs.start) - float(lengths.sum()))
        total = float(np.square(lengths).sum()) + room * self.density
        if group == 0:
            longer = slice(self.starts[1], len(self.loads))
            total -= float(np.maximum(self.targets[longer] - self.costs[longer], 0).sum())
        level_cost = water_level(floors, total / dp_size)
        num_leaders = min(int((floors > level_cost).sum()) * dp_size, len(own))
        self._put(own[:num_leaders], packs.start + np.arange(num_leaders))
        self.targets[packs] = np.repeat(np.maximum(floors, level_cost), dp_size)

    def _retarget(self, group: int) -> None:
        """Targets of a group's micro-steps as its own samples have come to lie."""
        packs = slice(self.starts[group], self.starts[group + 1])
        dp_size = self.spec.dp_size(group)
        room = np.maximum(self.levels[packs] - self.loads[packs], 0)
        full = self.costs[packs] + room * self.light
        order = np.argsort(-full, kind="stable")
        floors = full[order].reshape(-1, dp_size)[:, 0]
        self.targets[packs.start + order] = np.repeat(floors, dp_size)

    def _lead_shortest(self) -> None:
        if not self.layout.num_packs[0]:
            return
        own = np.arange(self.slices[1], self.slices[0])
        self._towards(own, slice(self.starts[1], len(self.loads)), self.levels, only_needed=True)
        own = own[self.pack[own] < 0]
        if own.size:
            self._lead(0, own)

    def _close_gaps(self) -> None:
        """Place the shortest by best fit, up to the levels and then up to the capacity, at last in others' places."""
        everywhere = slice(0, len(self.loads))
        for limits in (self.levels, self.capacity):
            self._best_fit(np.flatnonzero(self.pack < 0), everywhere, limits)
        left = self.lengths[self.pack < 0]
        if left.size and left[0] <= EXCHANGED_TOKENS:
            short = slice(int(np.searchsorted(-self.lengths, -EXCHANGED_TOKENS)), None)
            rooms = self.capacity - self.loads
            gather_room(self.lengths[short], self.pack[short], rooms)
            self.loads = self.capacity - rooms

    def _towards(self, items: Int64, packs: slice, limits: Int64, *, only_needed: bool = False) -> None:
        if not items.size or packs.start == packs.stop:
            return
        placed = pack_towards(
            self.lengths[items],
            self.loads[packs],
            self.costs[packs],
            limits[packs],
            self.targets[packs],
            only_needed=only_needed,
        )
        self.pack[items] = np.where(placed >= 0, placed + packs.start, -1)

    def _best_fit(self, items: Int64, packs: slice, limits: Int64) -> None:
        if items.size:
            placed = best_fit_into(self.lengths[items], np.maximum(limits[packs] - self.loads[packs], 0))
            self._put(items[placed >= 0], packs.start + placed[placed >= 0])

    def _put(self, items: Int64, packs: Int64) -> None:
        self.pack[items] = packs
        np.add.at(self.loads, packs, self.lengths[items])
        np.add.at(self.costs, packs, np.square(self.lengths[items]))


def water_level(floors: Float64, total: float) -> float:
    """The level at which the sum of max(level, floor) is ``total``; the lowest floor or 0 where floors hold more."""
    descending = np.sort(floors)[::-1]
    above = np.concatenate([np.zeros(1), np.cumsum(descending)[:-1]])
    levels = (total - above) / np.arange(len(floors), 0, -1)
    reached = np.flatnonzero(levels >= descending)
    return float(levels[reached[0]]) if reached.size else max(0.0, float(descending[-1]))


def equal_fullness(loads: Int64, capacity: Int64, tokens: int) -> float:
    """The share of their capacity to which packs are filled so that all together take ``tokens`` more."""
    share = loads / capacity
    order = np.argsort(share, kind="stable")
    room = np.cumsum(capacity[order])
    held = np.cumsum(loads[order])
    levels = (tokens + held) / room  # with the k emptiest packs taking part
    following = np.append(share[order][1:], np.inf)
    return float(levels[np.flatnonzero(levels <= following)[0]])
