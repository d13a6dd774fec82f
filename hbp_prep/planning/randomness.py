"""Random generators: one per purpose, all from the one seed, so that no purpose's draws depend on another's."""

from zlib import crc32

import numpy as np


def generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """A PCG64 generator for ``purpose`` (and ``numbers``: an epoch, a packing group, ...)."""
    return np.random.Generator(np.random.PCG64([seed, crc32(purpose.encode()), *numbers]))
