"""The sample table as rows of ``samples.arrow``: where every sample came from and in which pack it went."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from hbp_prep.manifest.parts import part_name
from hbp_prep.manifest.schema import SourceTotals
from hbp_prep.planning.types import Plan
from hbp_prep.sharding.columns import NameColumn
from hbp_prep.tokenization.store import StoredUnit, TokenStore
from hbp_prep.tokenization.table import SampleTable


def sample_batches(
    plan: Plan,
    table: SampleTable,
    store: TokenStore,
    file_names: Sequence[str],
    source_names: Sequence[str],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """One batch per unit of the token store, by sample id."""
    pack_of = plan.packs.of_samples()
    files, sources = NameColumn(file_names), NameColumn(source_names)
    groups = NameColumn([group.name for group in plan.spec.groups])
    starts = np.flatnonzero(np.diff(table.unit, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(table)], strict=True):
        rows = slice(start, stop)
        unit = store.unit(int(table.unit[start]))
        truncated_from = table.truncated_from[rows]
        columns = [
            pa.array(np.arange(start, stop)),
            sources.array(table.source[rows]),
            files.array(table.file[rows]),
            pa.array(table.row[rows]),
            _original_ids(unit, table, rows),
            pa.array(table.num_tokens[rows]),
            pa.array(table.num_loss_tokens[rows]),
            pa.array(truncated_from, mask=truncated_from == 0),
            groups.array(plan.packs.group[pack_of[rows]]),
            pa.array(pack_of[rows].astype(np.int64)),
        ]
        yield pa.record_batch(columns, schema=schema)
        store.release()


def _original_ids(unit: StoredUnit, table: SampleTable, rows: slice) -> pa.StringArray:
    """The rows' own ids; of parts, with their token ranges."""
    names = unit.original_ids.take(pa.array(table.index[rows]))
    parts = np.flatnonzero(table.is_part[rows])
    if not len(parts):
        return names
    first = table.first_token[rows]
    stop = first + table.num_tokens[rows]
    texts = names.to_pylist()
    for at in parts.tolist():
        texts[at] = part_name(texts[at], int(first[at]), int(stop[at]))
    return pa.array(texts, pa.string())


def totals_by_source(table: SampleTable, source_names: Sequence[str]) -> dict[str, SourceTotals]:
    """Samples, tokens and loss tokens of every source, those without samples included."""
    num_sources = len(source_names)
    samples = np.bincount(table.source, minlength=num_sources)
    tokens = np.bincount(table.source, table.num_tokens, num_sources)  # exact: float64 counts to 2^53
    loss_tokens = np.bincount(table.source, table.num_loss_tokens, num_sources)
    return {
        name: SourceTotals(
            num_samples=int(samples[index]), num_tokens=int(tokens[index]), num_loss_tokens=int(loss_tokens[index])
        )
        for index, name in enumerate(source_names)
    }
