"""Which input rows are trained on and which are rejected: 8 bytes per row, compared at the end."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbp_prep.manifest.checks.findings import Findings

Array = NDArray[Any]

_ROW_BITS = 40
_LAST_ROW = (1 << _ROW_BITS) - 1


class InputRows:
    """Input rows as int64 keys: the number of the (source, file) pair and the row in the file."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], int] = {}
        self._samples = [np.zeros(0, np.int64)]
        self._rejected = [np.zeros(0, np.int64)]

    def add_samples(self, batch: pa.RecordBatch) -> None:
        """Take in a batch of samples.arrow."""
        self._samples.append(self._keys(batch))

    def add_rejected(self, batch: pa.RecordBatch) -> None:
        """Take in a batch of rejected.arrow."""
        self._rejected.append(self._keys(batch))

    def check(self, rows_read: int, findings: Findings) -> None:
        """No row is on both sides or rejected twice, and together they are all rows read.

        A row may be in samples several times: sources with a weight above 1 use rows again.
        """
        samples = np.unique(np.concatenate(self._samples))
        rejected = np.sort(np.concatenate(self._rejected))
        self._none(rejected[1:][rejected[1:] == rejected[:-1]], "rejected twice", findings)
        self._none(np.intersect1d(samples, rejected), "in samples and in rejected", findings)
        num_rows = len(samples) + len(rejected)
        if num_rows != rows_read:
            findings.add(
                "rows",
                f"{len(samples)} rows in samples and {len(rejected)} in rejected are {num_rows}; "
                f"the manifest says that {rows_read} were read",
            )

    def _keys(self, batch: pa.RecordBatch) -> Array:
        source_names, source = decoded(batch.column("source"))
        file_names, file = decoded(batch.column("file"))
        both = source.astype(np.int64) * len(file_names) + file
        distinct, inverse = np.unique(both, return_inverse=True)
        pairs = [(source_names[value // len(file_names)], file_names[value % len(file_names)]) for value in distinct]
        numbers = np.array([self._pairs.setdefault(pair, len(self._pairs)) for pair in pairs], np.int64)
        return (numbers[inverse] << _ROW_BITS) | np.clip(batch.column("row").to_numpy(), 0, _LAST_ROW)

    def _none(self, keys: Array, what: str, findings: Findings) -> None:
        if len(keys):
            source, file = list(self._pairs)[int(keys[0]) >> _ROW_BITS]
            row = int(keys[0]) & _LAST_ROW
            findings.add("rows", f"row {row} of {file} (source {source}) is {what} ({len(keys)} such rows)")


def decoded(column: pa.Array) -> tuple[list[str], Array]:
    """A dictionary column as its names and int indices into them."""
    return column.dictionary.to_pylist(), column.indices.to_numpy()
