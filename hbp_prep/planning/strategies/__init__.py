"""Packing strategies by name: ``pack(lengths, capacity, rng) -> bin of each item``."""

from collections.abc import Callable
from typing import Final

import numpy as np

from hbp_prep.planning.strategies.best_fit_decreasing import best_fit_decreasing
from hbp_prep.planning.strategies.best_fit_shuffled import best_fit_shuffled
from hbp_prep.planning.strategies.first_fit_decreasing import first_fit_decreasing
from hbp_prep.planning.strategies.first_fit_shuffled import first_fit_shuffled
from hbp_prep.planning.strategies.iterative_sampling import iterative_sampling
from hbp_prep.planning.strategies.random_fill import random_fill
from hbp_prep.planning.strategies.shortest_pack_first import shortest_pack_first
from hbp_prep.planning.types import Int64

Strategy = Callable[[Int64, int, np.random.Generator], Int64]
"""Takes int64[n] lengths (each 1 .. capacity), the capacity and a generator; gives int64[n] bins, numbered densely."""

STRATEGIES: Final[dict[str, Strategy]] = {
    "random": random_fill,
    "isf": iterative_sampling,
    "ffs": first_fit_shuffled,
    "ffd": first_fit_decreasing,
    "bfs": best_fit_shuffled,
    "bfd": best_fit_decreasing,
    "spfhp": shortest_pack_first,
}

BALANCED: Final = "balanced"
"""Not a bin packing of one group but a way to fill all of them at once; see :mod:`hbp_prep.planning.packing`."""
