"""Simulated lengths of the paper's corpora. Shapes are assumed; Tulu3-like and LongCite-like fit published sizes."""

import numpy as np

from benchmarks.planner.lengths import synthetic_samples
from hbp_prep.planning.types import Samples

NUM_OPENHERMES = 200_000
OPENHERMES_RANGE_TOKENS = (16, 4_096)


def tulu3_longcite(seed: int, num_short: int) -> Samples:
    """Tulu3-like and, in the paper's proportion, about 2,000 LongCite-like samples per 954,672."""
    return synthetic_samples(seed, num_short, max(64, round(2_000 * num_short / 954_672)))


def tulu3(seed: int, num_short: int) -> Samples:
    """Tulu3-like alone."""
    return synthetic_samples(seed, num_short, 0)


def openhermes(seed: int) -> Samples:
    """One short source: LogNormal(5.75, 0.75), clipped to 16 .. 4,096 tokens, mean about 415."""
    rng = np.random.Generator(np.random.PCG64(seed))
    lengths = rng.lognormal(5.75, 0.75, NUM_OPENHERMES).clip(*OPENHERMES_RANGE_TOKENS).astype(np.int32)
    return Samples(
        num_tokens=lengths,
        num_loss_tokens=np.maximum(1, lengths // 2),
        source=np.zeros(len(lengths), np.int16),
        source_names=("openhermes",),
    )
