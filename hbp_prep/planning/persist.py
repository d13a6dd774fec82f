"""A plan on disk: one Arrow file per array length, and ``plan.json``, written last, with settings and metrics.

Arrays come back as views of memory-mapped files, so that every worker that writes shards shares one copy.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hbp_prep import files
from hbp_prep.errors import DataError
from hbp_prep.planning.types import (
    Curriculum,
    MicroStepMetrics,
    PackingGroup,
    Packs,
    Plan,
    PlanSpec,
    Schedule,
)

PLAN_VERSION = 1
_PLAN_NAME = "plan.json"

_PACK_COLUMNS = ("group", "num_tokens", "num_loss_tokens", "attention_cost")
_SCHEDULE_COLUMNS = ("epoch", "step", "micro_step", "group", "phase")
_METRIC_COLUMNS = tuple(field.name for field in fields(MicroStepMetrics))

Arrays = Mapping[str, np.ndarray[Any, np.dtype[Any]]]


def save_plan(plan: Plan, folder: Path) -> None:
    """Write ``plan`` into ``folder``; it is whole once ``plan.json`` stands there.

    Raises:
        DataError: the folder cannot be written.
    """
    (folder / _PLAN_NAME).unlink(missing_ok=True)
    packs, schedule = plan.packs, plan.schedule
    _write(folder / "packs.arrow", {name: getattr(packs, name) for name in _PACK_COLUMNS})
    _write(folder / "pack_offsets.arrow", {"offsets": packs.offsets})
    _write(folder / "pack_samples.arrow", {"sample_ids": packs.sample_ids})
    _write(folder / "micro_steps.arrow", {name: getattr(schedule, name) for name in _SCHEDULE_COLUMNS})
    _write(folder / "micro_step_metrics.arrow", {name: getattr(plan.micro_steps, name) for name in _METRIC_COLUMNS})
    _write(folder / "assignment_offsets.arrow", {"offsets": schedule.assignment_offsets})
    _write(folder / "assignments.arrow", {"packs": schedule.assignment_packs})
    document = {"version": PLAN_VERSION, "spec": asdict(plan.spec), "metrics": plan.metrics}
    files.write_json(folder / _PLAN_NAME, document | {"phase_names": schedule.phase_names})


def load_plan(folder: Path) -> Plan:
    """Read what :func:`save_plan` wrote.

    Raises:
        DataError: the plan is missing, damaged or of another version.
    """
    try:
        document = json.loads((folder / _PLAN_NAME).read_bytes())
        if document["version"] != PLAN_VERSION:
            raise ValueError(f"version {document['version']}, expected {PLAN_VERSION}")
        return Plan(
            spec=_spec(document["spec"]),
            packs=Packs(
                **_read(folder / "packs.arrow"),
                **_read(folder / "pack_offsets.arrow"),
                **_read(folder / "pack_samples.arrow"),
            ),
            schedule=Schedule(
                **_read(folder / "micro_steps.arrow"),
                assignment_offsets=_read(folder / "assignment_offsets.arrow")["offsets"],
                assignment_packs=_read(folder / "assignments.arrow")["packs"],
                phase_names=tuple(document["phase_names"]),
            ),
            micro_steps=MicroStepMetrics(**_read(folder / "micro_step_metrics.arrow")),
            metrics=document["metrics"],
        )
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise DataError(f"the plan in {folder} is missing or damaged ({error}); run again with --overwrite") from error


def _spec(value: dict[str, Any]) -> PlanSpec:
    groups = tuple(PackingGroup(**group) for group in value["groups"])
    return PlanSpec(**(value | {"groups": groups, "curriculum": Curriculum(**value["curriculum"])}))


def _write(path: Path, arrays: Arrays) -> None:
    table = pa.table({name: pa.array(array) for name, array in arrays.items()})
    with files.atomic_write(path) as handle, pa.ipc.new_file(handle, table.schema) as writer:
        writer.write_table(table)


def _read(path: Path) -> dict[str, Any]:
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all().combine_chunks()
    return {name: table.column(name).to_numpy() for name in table.column_names}
