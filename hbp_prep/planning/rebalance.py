"""Other packs for the worst micro-steps: what sorting cannot do.

Sorting is optimal for finished packs (see :mod:`hbp_prep.planning.balancing`); where few packs differ much, as at the
long end, only other packs help. The micro-steps that waste most attention work, of all packing groups together, give
up their samples. The "solid" ones (longer than ``SOLID_TOKENS``) move between packs by simulated annealing
(:mod:`hbp_prep.planning.kernels.anneal`); all shorter ones are a fluid that fills every pack to its group's level and
counts, meanwhile, by its mean attention cost per token. Then the fluid is poured back for real, and the result is taken
only where the waste really falls. Cost: under a second, whatever the corpus; 70 bytes per sample.
"""

import numpy as np

from hbp_prep.planning.filling import Filled
from hbp_prep.planning.kernels.anneal import anneal
from hbp_prep.planning.kernels.best_fit import best_fit_into
from hbp_prep.planning.kernels.worst_fit import worst_fit_into
from hbp_prep.planning.randomness import generator
from hbp_prep.planning.types import Float64, Int32, Int64, PlanSpec

SOLID_TOKENS = 1024
TIGHT_TOKENS = (0, 128, SOLID_TOKENS)
"""Fluid samples of at most this length are placed to close gaps, the others to keep packs even: the first that fits."""

RESERVE_TOKENS = 512
"""Room for fluid that solid samples leave in every pack, where there is that much fluid."""

MAX_MICRO_STEPS = 128
MAX_PACKS = 8192
MOVES_PER_SOLID = 4000
MAX_MOVES = 3_000_000
MAX_PACK_VISITS = 96_000_000
"""Moves x the largest DP size: every move looks at all packs of two micro-steps."""

HOT, COLD = 0.3, 1e-5
"""First and last temperature, as shares of the mean pack cost."""

VARIANCE_WEIGHT = 0.1
"""Per unit of the largest pack cost."""


def rebalance(spec: PlanSpec, num_tokens: Int32, filled: Filled) -> Filled:
    """Lower the attention imbalance of the worst micro-steps.

    Args:
        spec: The plan's settings.
        num_tokens: int32[N].
        filled: Samples in packs.

    Returns:
        As many packs in every packing group, none empty or over its length, with samples moved between them; or
        ``filled`` itself, where nothing better was found.
    """
    lengths = num_tokens.astype(np.int64)
    cost = np.bincount(filled.pack_of_sample, weights=np.square(lengths.astype(np.float64))).astype(np.float64)
    packs, starts = _worst_micro_steps(spec, filled, cost)
    if _waste(cost[packs], starts) == 0:
        return filled
    position = np.full(len(cost), -1, dtype=np.int64)
    position[packs] = np.arange(packs.size)
    samples = np.flatnonzero(position[filled.pack_of_sample] >= 0)
    work = _Work(spec, filled.group_of_pack[packs].astype(np.int64), starts, lengths[samples])
    moved = work.run(position[filled.pack_of_sample[samples]])
    if moved is None:
        return filled
    pack_of_sample = filled.pack_of_sample.copy()
    pack_of_sample[samples] = packs[moved]
    return Filled(pack_of_sample=pack_of_sample, group_of_pack=filled.group_of_pack)


def _worst_micro_steps(spec: PlanSpec, filled: Filled, cost: Float64) -> tuple[Int64, Int64]:
    """Packs of the most wasteful micro-steps, packing groups ascending, and where each micro-step starts among them."""
    rows: list[tuple[float, int, Int64]] = []
    for group in range(len(spec.groups)):
        members = np.flatnonzero(filled.group_of_pack == group)
        by_cost = members[np.argsort(cost[members], kind="stable")].reshape(-1, spec.dp_size(group))
        waste = cost[by_cost].max(axis=1, initial=0) * spec.dp_size(group) - cost[by_cost].sum(axis=1)
        rows += [(-float(lost), group, row) for lost, row in zip(waste, by_cost, strict=True)]
    rows.sort(key=lambda row: (row[0], row[1], int(row[2][0])))
    num_packs = np.cumsum([len(row) for _, _, row in rows])
    worst = rows[: max(1, min(MAX_MICRO_STEPS, int(np.searchsorted(num_packs, MAX_PACKS, side="right"))))]
    worst.sort(key=lambda row: (row[1], int(row[2][0])))
    starts = np.cumsum([0] + [len(row) for _, _, row in worst])
    return np.concatenate([row for _, _, row in worst]), starts.astype(np.int64)


class _Work:
    """The chosen packs and samples; packs are numbered from 0, by packing group and micro-step."""

    def __init__(self, spec: PlanSpec, group: Int64, starts: Int64, lengths: Int64) -> None:
        self.seed = spec.seed
        self.group, self.starts, self.lengths = group, starts, lengths
        self.capacity = np.array([each.pack_length for each in spec.groups], dtype=np.int64)
        by_length = np.argsort(lengths, kind="stable")
        is_solid = lengths[by_length] > SOLID_TOKENS
        self.solid, self.fluid = by_length[is_solid], by_length[~is_solid]

    def run(self, pack: Int64) -> Int64 | None:
        """The new pack of each sample; ``None`` where it is no better than ``pack``."""
        if not self.solid.size:
            return None
        loads = self._loads(pack)
        num_groups = len(self.capacity)
        num_packs = np.maximum(np.bincount(self.group, minlength=num_groups), 1)
        tokens = np.bincount(self.group, weights=loads, minlength=num_groups).astype(np.int64)
        level = -(-tokens // num_packs)
        moved = np.full(len(pack), -1, dtype=np.int64)
        moved[self.solid] = self._anneal(pack, level)
        if not any(self._pour(moved, level, tight_tokens) for tight_tokens in TIGHT_TOKENS):
            return None
        before = _waste(self._resorted(self._costs(pack)), self.starts)
        after = _waste(self._resorted(self._costs(moved)), self.starts)
        return moved if after < before else None

    def _anneal(self, pack: Int64, level: Int64) -> Int64:
        lengths = self.lengths[self.solid]
        fluid = self.lengths[self.fluid].astype(np.float64)
        density = float(np.square(fluid).sum() / fluid.sum()) if fluid.size else 0.0
        # A token of a solid sample takes the place of a token of fluid.
        net = np.square(lengths.astype(np.float64)) - density * lengths
        pack_cost = np.bincount(pack[self.solid], weights=net, minlength=len(self.group)) + density * level[self.group]
        mean_cost = float(pack_cost.mean())
        return anneal(
            lengths=lengths,
            costs=net,
            pack_of_item=pack[self.solid],
            pack_cost=pack_cost,
            limits=self._limits(pack, level)[self.group],
            longest=self.capacity[self.group],
            starts=self.starts,
            num_moves=min(
                MAX_MOVES, MOVES_PER_SOLID * self.solid.size, MAX_PACK_VISITS // int(np.diff(self.starts).max())
            ),
            hot=HOT * mean_cost,
            cold=COLD * mean_cost,
            variance_weight=VARIANCE_WEIGHT / float(pack_cost.max()),
            seed=int(generator(self.seed, "anneal").integers(2**62)),
        )

    def _limits(self, pack: Int64, level: Int64) -> Int64:
        """Per packing group the tokens of solid samples that a pack may hold, so that tokens can stay even."""
        if self.lengths[self.fluid].sum() >= RESERVE_TOKENS * len(self.group):
            return level - np.minimum(RESERVE_TOKENS, level // 2)
        fullest = np.zeros_like(level)
        np.maximum.at(fullest, self.group, self._loads(pack))
        return fullest

    def _pour(self, pack: Int64, level: Int64, tight_tokens: int) -> bool:
        """Put the fluid where it is missing, in place; whether all of it fits. Longer groups first take a random share.

        The shortest group takes what is left. Samples of at most ``tight_tokens`` are placed to close gaps.
        """
        pack[self.fluid] = -1
        left = generator(self.seed, "pour").permutation(self.fluid)
        used = np.unique(self.group)
        for group in used[::-1]:
            members = np.flatnonzero(self.group == group)
            loads = self._loads(pack)[members]
            room = int(np.maximum(level[group] - loads, 0).sum())
            num_drawn = int(np.searchsorted(np.cumsum(self.lengths[left]), room, side="right"))
            drawn = left if group == used[0] else left[:num_drawn]
            drawn = drawn[np.argsort(-self.lengths[drawn], kind="stable")]
            taken = _pour_evenly(self.lengths[drawn], loads, int(level[group]), int(self.capacity[group]), tight_tokens)
            pack[drawn[taken >= 0]] = members[taken[taken >= 0]]
            left = left[pack[left] < 0]
        left = left[np.argsort(-self.lengths[left], kind="stable")]
        pack[left] = best_fit_into(self.lengths[left], self.capacity[self.group] - self._loads(pack))
        return bool((pack >= 0).all() and self._loads(pack).all())

    def _loads(self, pack: Int64) -> Int64:
        """Tokens of each pack, of the samples that have one."""
        inside = pack >= 0
        return np.bincount(pack[inside], weights=self.lengths[inside], minlength=len(self.group)).astype(np.int64)

    def _costs(self, pack: Int64) -> Float64:
        squares = np.square(self.lengths.astype(np.float64))
        return np.bincount(pack, weights=squares, minlength=len(self.group)).astype(np.float64)

    def _resorted(self, cost: Float64) -> Float64:
        """Costs ascending inside every packing group, as they will be cut into micro-steps."""
        return cost[np.lexsort((cost, self.group))]


def _pour_evenly(lengths: Int64, loads: Int64, level: int, capacity: int, tight_tokens: int) -> Int64:
    """Put samples, longest first, into packs: long ones into the emptiest, short ones where they leave the least gap.

    Args:
        lengths: int64[n], descending.
        loads: int64[P], tokens of each pack; updated.
        level: Mean load with everything in; the gaps up to it are closed first.
        capacity: Tokens that a pack may hold.
        tight_tokens: The longest of the short ones.

    Returns:
        int64[n], the pack of each sample, or -1.
    """
    pack = np.full(len(lengths), -1, dtype=np.int64)
    num_bulk = int(np.searchsorted(-lengths, -tight_tokens))
    pack[:num_bulk] = worst_fit_into(lengths[:num_bulk], loads, capacity, capacity)
    for limit in (level, capacity):
        left = np.flatnonzero(pack < 0)
        pack[left] = best_fit_into(lengths[left], np.maximum(limit - loads, 0))
        np.add.at(loads, pack[left[pack[left] >= 0]], lengths[left[pack[left] >= 0]])
    return pack


def _waste(cost: Float64, starts: Int64) -> float:
    """Attention work for which ranks wait: the sum over micro-steps of (packs x largest cost - sum of costs)."""
    largest = np.maximum.reduceat(cost, starts[:-1])
    return float((largest * np.diff(starts)).sum() - cost.sum())
