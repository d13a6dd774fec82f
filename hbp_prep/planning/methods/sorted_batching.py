"""LongAlign's sorted batching (arXiv 2401.18058): batches of samples alike in length, the batches in random order.

Samples are sorted by length and cut into packs in that order, packs into micro-steps in that order: balanced, but a
batch holds one length only, which is the bias that the batch-bias figures show.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.assemble import packs_from, shuffle_sorted
from hbp_prep.planning.kernels.next_fit import next_fit
from hbp_prep.planning.types import PlanSpec, Samples


def sorted_batching(spec: PlanSpec, samples: Samples, cost: CostModel) -> Mapping[str, Any]:
    """Plan to the longest packing length."""
    lengths = samples.num_tokens.astype(np.int64)
    by_length = np.argsort(lengths, kind="stable")
    bins = np.empty(len(lengths), dtype=np.int64)
    bins[by_length] = next_fit(lengths[by_length], spec.groups[-1].pack_length)
    packs = packs_from(samples, bins, np.zeros(int(bins.max()) + 1, dtype=np.int16))
    single = replace(spec, groups=spec.groups[-1:])
    return shuffle_sorted(single, samples, packs, np.arange(len(packs), dtype=np.int64), cost).metrics
