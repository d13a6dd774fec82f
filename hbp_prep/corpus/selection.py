"""How often each row of a source is used: its weight and limit, drawn from the seed among the rows that are candidates.

Cost: eight bytes a row and a partition of them, about 0.1 s for 10M rows.
"""

import math
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hbp_prep.corpus.types import Corpus, LeftOut, Unit
from hbp_prep.errors import ConfigError

_MAX_REPEATS = int(np.iinfo(np.uint16).max)


def row_repeats(
    num_rows: int,
    *,
    weight: float,
    limit: int | None,
    seed: int,
    source_name: str,
    is_candidate: NDArray[np.bool_] | None = None,
) -> NDArray[np.uint16]:
    """How often each of a source's rows is used, ``uint16[num_rows]``.

    Their sum is ``round(weight * n)`` (half to even), at most ``limit``, where n is the number of candidates. Every
    candidate is used sum // n times; those that are used once more are drawn without replacement, from the seed and the
    source's name alone.

    Args:
        is_candidate: bool[num_rows], false for rows that are not used at all; ``None``: all are candidates.

    Raises:
        ConfigError: the weight is not a finite number above 0, or would use rows more than 65,535 times; or the limit
            is below 1.
    """
    if is_candidate is not None:
        repeats = np.zeros(num_rows, np.uint16)
        num_candidates = int(np.count_nonzero(is_candidate))
        repeats[is_candidate] = row_repeats(
            num_candidates, weight=weight, limit=limit, seed=seed, source_name=source_name
        )
        return repeats
    if not (math.isfinite(weight) and weight > 0):
        raise ConfigError(
            f"source {source_name!r}: weight is {weight}; it must be a number above 0 (1 uses every row once)"
        )
    if limit is not None and limit < 1:
        raise ConfigError(f"source {source_name!r}: limit is {limit}; it must be 1 or more (leave it out for no limit)")
    target = round(weight * num_rows)
    if limit is not None:
        target = min(target, limit)
    if num_rows == 0:
        return np.zeros(0, np.uint16)
    copies, num_extra = divmod(target, num_rows)
    if copies + (num_extra > 0) > _MAX_REPEATS:
        raise ConfigError(f"source {source_name!r}: weight {weight} uses rows over {_MAX_REPEATS:,} times; lower it")
    repeats = np.full(num_rows, copies, np.uint16)
    if num_extra:
        # Raw PCG64 output, unlike Generator's methods, is promised to stay the same in every NumPy release.
        generator = np.random.PCG64([seed, crc32(b"row selection"), crc32(source_name.encode())])
        keys = generator.random_raw(num_rows)
        repeats[np.argpartition(keys, num_extra - 1)[:num_extra]] += np.uint16(1)
    return repeats


class RowSelection:
    """How often each row of a corpus is used; a source's draw is made once and kept while its units come in order."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self._corpus = corpus
        self._seed = seed
        self._source = -1
        self._repeats = np.zeros(0, np.uint16)

    def repeats(self, unit: Unit) -> NDArray[np.uint16]:
        """For every row of the unit, uint16[unit.num_rows]."""
        index = self._corpus.files[unit.file].source
        if index != self._source:
            source, sieve = self._corpus.sources[index], self._corpus.sieve_of(index)
            self._repeats = row_repeats(
                self._corpus.num_rows_of_source(index),
                weight=source.weight,
                limit=source.limit,
                seed=self._seed,
                source_name=source.name,
                is_candidate=None if sieve is None else sieve == LeftOut.NOT,
            )
            self._source = index
        return self._repeats[unit.first_ordinal : unit.first_ordinal + unit.num_rows]

    def why_not(self, unit: Unit) -> NDArray[np.uint8]:
        """For every row of the unit why the sieve leaves it out, uint8[unit.num_rows] of ``LeftOut``."""
        sieve = self._corpus.sieve_of(self._corpus.files[unit.file].source)
        if sieve is None:
            return np.zeros(unit.num_rows, np.uint8)
        return sieve[unit.first_ordinal : unit.first_ordinal + unit.num_rows]
