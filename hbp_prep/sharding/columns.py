"""Names as dictionary columns: every batch of a file shares one dictionary, as the Arrow file format wants."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike


class NameColumn:
    """A dictionary of names for one column of one file."""

    def __init__(self, names: Sequence[str]) -> None:
        self._dictionary = pa.array(names, pa.string())

    def array(self, indices: ArrayLike) -> pa.DictionaryArray:
        """The column's values for a batch, given as indices into the names."""
        return pa.DictionaryArray.from_arrays(pa.array(np.asarray(indices, np.int32)), self._dictionary)
