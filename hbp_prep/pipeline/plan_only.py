"""``hbp-prep plan``: a plan without tokens, and its files in the contract's columns."""

import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hbp_prep.fingerprint import fingerprint
from hbp_prep.manifest.schema import ASSIGNMENTS_NAME, MICRO_STEPS_NAME, SAMPLES_NAME
from hbp_prep.manifest.tables import (
    ASSIGNMENTS_SCHEMA,
    MICRO_STEPS_SCHEMA,
    SAMPLES_SCHEMA,
    SHARD_SCHEMA,
    with_metadata,
)
from hbp_prep.manifest.writer import write_table
from hbp_prep.pipeline.lengths import Problem
from hbp_prep.planning.planner import make_plan
from hbp_prep.planning.types import Plan, Samples
from hbp_prep.progress import Progress
from hbp_prep.sharding.columns import NameColumn
from hbp_prep.sharding.schedule_rows import assignment_batches, micro_step_batches, places_in

PACKS_NAME = "packs.arrow"
_NAME = pa.dictionary(pa.int32(), pa.string())
PACKS_SCHEMA = pa.schema(
    [
        pa.field("pack_id", pa.int64(), nullable=False),
        pa.field("group", _NAME, nullable=False),
        *(field for field in SHARD_SCHEMA if field.name not in ("pack_id", "input_ids", "loss_mask")),
    ]
)
"""A shard's columns without the tokens, and the packing group."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan and the seconds that the planner took."""

    plan: Plan
    planning_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data: the metrics (docs/metrics.md) and ``planning_seconds``."""
        return {
            **self.plan.metrics,
            "strategy": self.plan.spec.strategy,
            "world_size": self.plan.spec.world_size,
            "planning_seconds": self.planning_seconds,
        }


def plan_only(problem: Problem, progress: Progress) -> Planned:
    """Plan without tokens.

    Raises:
        PlanError: no valid plan exists for these samples.
    """
    started = time.perf_counter()
    plan = make_plan(problem.spec, problem.samples, problem.cost, progress)
    return Planned(plan=plan, planning_seconds=time.perf_counter() - started)


def write_plan(folder: Path, plan: Plan, samples: Samples, origin: str) -> None:
    """Write ``samples.arrow``, ``packs.arrow`` and ``schedule/``.

    Args:
        folder: New or empty (:func:`hbp_prep.pipeline.folder.refuse_filled` makes sure before the work).
        origin: What stands in the column ``file`` of samples.arrow.

    Raises:
        DataError: it cannot be written.
    """
    key = fingerprint({"spec": repr(plan.spec), "lengths": sha256(samples.num_tokens.tobytes()).hexdigest()})

    def write(name: str, types: pa.Schema, batches: Any) -> None:
        schema = with_metadata(types, fingerprint=key)
        write_table(folder / name, schema, batches(schema))

    rows_of_groups = np.bincount(plan.packs.group, minlength=len(plan.spec.groups)).tolist()
    places = places_in(enumerate(rows_of_groups))
    write(SAMPLES_NAME, SAMPLES_SCHEMA, lambda schema: [_sample_rows(plan, samples, origin, schema)])
    write(PACKS_NAME, PACKS_SCHEMA, lambda schema: [_pack_rows(plan, samples, schema)])
    write(MICRO_STEPS_NAME, MICRO_STEPS_SCHEMA, lambda schema: micro_step_batches(plan, schema))
    write(ASSIGNMENTS_NAME, ASSIGNMENTS_SCHEMA, lambda schema: assignment_batches(plan, places, schema))


def _sample_rows(plan: Plan, samples: Samples, origin: str, schema: pa.Schema) -> pa.RecordBatch:
    pack_of = plan.packs.of_samples()
    groups = NameColumn([group.name for group in plan.spec.groups])
    rows = np.arange(len(samples), dtype=np.int64)
    columns = [
        pa.array(rows),
        NameColumn(samples.source_names).array(samples.source),
        NameColumn([origin]).array(np.zeros(len(samples))),
        pa.array(rows),
        pa.nulls(len(samples), pa.string()),
        pa.array(samples.num_tokens),
        pa.array(samples.num_loss_tokens),
        pa.nulls(len(samples), pa.int32()),
        groups.array(plan.packs.group[pack_of]),
        pa.array(pack_of.astype(np.int64)),
    ]
    return pa.record_batch(columns, schema=schema)


def _pack_rows(plan: Plan, samples: Samples, schema: pa.Schema) -> pa.RecordBatch:
    packs = plan.packs
    offsets = pa.array(packs.offsets.astype(np.int32))
    columns = [
        pa.array(np.arange(len(packs))),
        NameColumn([group.name for group in plan.spec.groups]).array(packs.group),
        pa.ListArray.from_arrays(offsets, pa.array(samples.num_tokens[packs.sample_ids])),
        pa.ListArray.from_arrays(offsets, pa.array(packs.sample_ids)),
        pa.array(packs.num_tokens),
        pa.array(packs.num_loss_tokens),
        pa.array(packs.attention_cost),
    ]
    return pa.record_batch(columns, schema=schema)
