"""Synthetic sample lengths in the shapes of Tulu 3 and LongCite.

The distributions fit published byte counts of those corpora; their shapes are assumed.
"""

import numpy as np

from hbp_prep.planning.types import Samples

NUM_SHORT = 954_672
NUM_LONG = 2_000
SHORT_RANGE_TOKENS = (8, 32_768)
LONG_RANGE_TOKENS = (1_500, 131_072)
SHORT_SOURCES = 8
LOSS_SHARE = 0.4


def synthetic_samples(seed: int, num_short: int = NUM_SHORT, num_long: int = NUM_LONG) -> Samples:
    """``num_short`` Tulu3-like samples from eight sources of unlike lengths, and ``num_long`` LongCite-like ones.

    Short: 45% LogNormal(5.3, 0.75) and 55% LogNormal(6.75, 0.65), clipped to 8 .. 32,768 tokens. Long: LogNormal(10.1,
    0.72), redrawn until within 1,500 .. 131,072 tokens.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    brief = rng.random(num_short) < 0.45
    short = np.where(brief, rng.lognormal(5.3, 0.75, num_short), rng.lognormal(6.75, 0.65, num_short))
    short = short.clip(*SHORT_RANGE_TOKENS)
    candidates = rng.lognormal(10.1, 0.72, 2 * num_long + 100)
    fitting = candidates[(candidates >= LONG_RANGE_TOKENS[0]) & (candidates <= LONG_RANGE_TOKENS[1])]
    lengths = np.concatenate([short, fitting[:num_long]]).astype(np.int32)
    half = SHORT_SOURCES // 2
    source = np.where(brief, rng.integers(0, half, num_short), rng.integers(half, SHORT_SOURCES, num_short))
    names = (*(f"short-{index}" for index in range(SHORT_SOURCES)), "long")
    return Samples(
        num_tokens=lengths,
        num_loss_tokens=np.maximum(1, lengths * LOSS_SHARE).astype(np.int32),
        source=np.concatenate([source, np.full(num_long, SHORT_SOURCES)]).astype(np.int16),
        source_names=names,
    )
