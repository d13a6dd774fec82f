"""One packing length, the longest, with any packing strategy; packs come at random. The common practice."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.assemble import packs_from, schedule_packs
from hbp_prep.planning.randomness import generator
from hbp_prep.planning.strategies import STRATEGIES
from hbp_prep.planning.types import Curriculum, Int64, PlanSpec, Samples


def one_length(strategy: str, spec: PlanSpec, samples: Samples, cost: CostModel) -> Mapping[str, Any]:
    """Pack everything to the longest packing length with ``strategy``."""
    capacity = spec.groups[-1].pack_length
    bins = STRATEGIES[strategy](samples.num_tokens.astype(np.int64), capacity, generator(spec.seed, "pack"))
    return of_packs(spec, samples, cost, bins)


def no_packing(spec: PlanSpec, samples: Samples, cost: CostModel) -> Mapping[str, Any]:
    """Every sample a pack of its own."""
    return of_packs(spec, samples, cost, np.arange(len(samples), dtype=np.int64))


def of_packs(spec: PlanSpec, samples: Samples, cost: CostModel, bins: Int64) -> Mapping[str, Any]:
    """Metrics of packs of the longest packing length, in random order.

    Args:
        bins: int64[N], the pack of each sample, numbered densely.
    """
    single = replace(spec, groups=spec.groups[-1:], order="random", curriculum=Curriculum())
    packs = packs_from(samples, bins, np.zeros(int(bins.max()) + 1, dtype=np.int16))
    return schedule_packs(single, samples, packs, cost).metrics
