"""The plan's schedule as the rows of both schedule files."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hbp_prep.manifest.tables import ASSIGNMENTS_SCHEMA, MICRO_STEPS_SCHEMA
from hbp_prep.planning.types import EMPTY_PACK, Int32, Plan
from hbp_prep.sharding.columns import NameColumn

_ROWS_PER_BATCH = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PackPlaces:
    """Where every pack lies, by pack id: the number of its shard within its packing group, and its row there."""

    shard: Int32
    row: Int32


def micro_step_batches(plan: Plan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """``schedule/micro_steps.arrow``: one row per micro-step, in training order."""
    schedule, figures = plan.schedule, plan.micro_steps
    groups = NameColumn([group.name for group in plan.spec.groups])
    phases = NameColumn(schedule.phase_names)
    for start in range(0, len(schedule), _ROWS_PER_BATCH):
        rows = slice(start, start + _ROWS_PER_BATCH)
        columns = {
            "epoch": schedule.epoch[rows],
            "step": schedule.step[rows],
            "micro_step": schedule.micro_step[rows],
            "group": groups.array(schedule.group[rows]),
            "phase": phases.array(schedule.phase[rows]),
            "num_tokens": figures.num_tokens[rows],
            "num_loss_tokens": figures.num_loss_tokens[rows],
            "abr": figures.abr[rows],
            "dbr": figures.dbr[rows],
            "tbr": figures.tbr[rows],
            "predicted_seconds": figures.predicted_seconds[rows],
        }
        yield _record_batch(columns, MICRO_STEPS_SCHEMA, schema)


def assignment_batches(plan: Plan, places: PackPlaces, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """``schedule/assignments.arrow``: one row per DP rank of every micro-step, in training order.

    An empty pack has -1 for pack, shard and row.
    """
    schedule = plan.schedule
    dp_sizes = np.diff(schedule.assignment_offsets)
    micro_step_of = np.repeat(np.arange(len(schedule)), dp_sizes)
    dp_rank = np.arange(len(micro_step_of)) - schedule.assignment_offsets[micro_step_of]
    shard, row = (np.append(part, np.int32(EMPTY_PACK)) for part in (places.shard, places.row))
    for start in range(0, len(micro_step_of), _ROWS_PER_BATCH):
        rows = slice(start, start + _ROWS_PER_BATCH)
        pack_id = schedule.assignment_packs[rows]
        columns = {
            "step": schedule.step[micro_step_of[rows]],
            "micro_step": schedule.micro_step[micro_step_of[rows]],
            "dp_rank": dp_rank[rows],
            "pack_id": pack_id,
            "shard": shard[pack_id],
            "row": row[pack_id],
        }
        yield _record_batch(columns, ASSIGNMENTS_SCHEMA, schema)


def places_in(rows_of_shards: Iterable[tuple[int, int]]) -> PackPlaces:
    """Where every pack lies, from (packing group, rows) of every shard in the order of pack ids."""
    seen: dict[int, int] = {}
    shard_parts, row_parts = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for group, rows in rows_of_shards:
        number = seen.get(group, 0)
        seen[group] = number + 1
        shard_parts.append(np.full(rows, number, np.int32))
        row_parts.append(np.arange(rows, dtype=np.int32))
    return PackPlaces(shard=np.concatenate(shard_parts), row=np.concatenate(row_parts))


def _record_batch(columns: dict[str, object], types: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(np.asarray(column), types.field(name).type)
        for name, column in columns.items()
    ]
    return pa.record_batch(arrays, schema=schema)
