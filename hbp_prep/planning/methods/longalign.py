"""LongAlign's packing with loss weighting (arXiv 2401.18058): samples in random order, next fit, packs at random.

Packing alone would let long samples weigh more in the loss; :func:`loss_weights` gives every sample the same weight.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.methods.one_length import of_packs
from hbp_prep.planning.randomness import generator
from hbp_prep.planning.strategies.random_fill import random_fill
from hbp_prep.planning.types import Float64, Int32, PlanSpec, Samples


def longalign(spec: PlanSpec, samples: Samples, cost: CostModel) -> Mapping[str, Any]:
    """Plan to the longest packing length."""
    capacity = spec.groups[-1].pack_length
    bins = random_fill(samples.num_tokens.astype(np.int64), capacity, generator(spec.seed, "pack"))
    return of_packs(spec, samples, cost, bins)


def loss_weights(num_loss_tokens: Int32, num_packs: int) -> Float64:
    """Weight of each sample's token losses in a batch of M samples in K packs, equation 3 of the paper.

    The batch's loss is the mean over packs of the weighted sum of token losses; with the weight K / (M x N) for a
    sample of N loss tokens it equals the mean over samples of each sample's mean loss.

    Args:
        num_loss_tokens: int32[M].
        num_packs: K.

    Returns:
        float64[M]; 0 for a sample without loss tokens, which M does not count.
    """
    has_loss = num_loss_tokens > 0
    scale = num_packs / max(int(has_loss.sum()), 1)
    return np.divide(scale, num_loss_tokens, out=np.zeros(len(num_loss_tokens)), where=has_loss)
