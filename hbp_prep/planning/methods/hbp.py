"""Hierarchical Balance Packing to the letter (arXiv 2503.07680, Algorithms 2 and 5 to 7).

GroupData, ISF per packing group, GreedyFill of a longer group's packs with samples of the shorter ones (longest group
first, before the shorter ones are packed), packs sorted by the sum of squared lengths and cut into micro-steps.
Leftovers, which the paper does not speak of, are kept: the last micro-step of a group has empty packs.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.assemble import packs_from, shuffle_sorted
from hbp_prep.planning.grouping import group_of_samples
from hbp_prep.planning.kernels.best_fit import best_fit_into
from hbp_prep.planning.randomness import generator
from hbp_prep.planning.strategies import STRATEGIES
from hbp_prep.planning.types import Int64, PlanSpec, Samples


def hbp(spec: PlanSpec, samples: Samples, cost: CostModel) -> Mapping[str, Any]:
    """Plan with the packing groups of ``spec``."""
    pack_of_sample, sizes = hierarchical_packs(spec, samples)
    group_of_pack = np.repeat(np.arange(len(sizes), dtype=np.int16), sizes)
    packs = packs_from(samples, pack_of_sample, group_of_pack)
    return shuffle_sorted(spec, samples, packs, packs.attention_cost, cost).metrics


def hierarchical_packs(spec: PlanSpec, samples: Samples) -> tuple[Int64, list[int]]:
    """GroupData, ISF and GreedyFill.

    Returns:
        int64[N], the pack of each sample, packing groups ascending; and the number of packs of each group.
    """
    lengths = samples.num_tokens.astype(np.int64)
    group_of_sample = group_of_samples(samples.num_tokens, spec.groups)
    local = np.full(len(lengths), -1, dtype=np.int64)
    taken_by = group_of_sample.astype(np.int64)
    sizes = [0] * len(spec.groups)
    for group in reversed(range(len(spec.groups))):
        own = np.flatnonzero((group_of_sample == group) & (local < 0))
        if not len(own):
            continue
        capacity = spec.groups[group].pack_length
        local[own] = STRATEGIES["isf"](lengths[own], capacity, generator(spec.seed, "pack", group))
        loads = np.bincount(local[own], weights=lengths[own]).astype(np.int64)
        sizes[group] = len(loads)
        smaller = np.flatnonzero((group_of_sample < group) & (local < 0))
        pool = generator(spec.seed, "fill", group).permutation(smaller)
        room = int((capacity - loads).sum())
        pool = pool[: np.searchsorted(np.cumsum(lengths[pool]), room, side="right")]
        pool = pool[np.argsort(-lengths[pool], kind="stable")]
        local[pool] = best_fit_into(lengths[pool], capacity - loads)
        taken_by[pool[local[pool] >= 0]] = group
    first = np.cumsum([0, *sizes[:-1]])
    return local + first[taken_by], sizes
