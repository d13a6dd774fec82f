"""A plan on disk: two Arrow IPC files and ``plan.json``, which is written last. Arrays are memory-mapped on load.

- ``packs.arrow``: one row per pack: group, sample ids, token counts, attention cost.
- ``micro_steps.arrow``: one row per micro-step in training order: where it stands, its packs by DP rank, its figures.
- ``plan.json``: settings, phase names, metrics, and the SHA-256 of the other two.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from hbp_prep.errors import ManifestError
from hbp_prep.files import atomic_write, sha256_file, write_json
from hbp_prep.planning.types import (
    Curriculum,
    Int64,
    MicroStepMetrics,
    PackingGroup,
    Packs,
    Plan,
    PlanSpec,
    Schedule,
)

FORMAT = "hbp-plan"
FORMAT_VERSION = 1
PACKS_FILE = "packs.arrow"
MICRO_STEPS_FILE = "micro_steps.arrow"
PLAN_FILE = "plan.json"

_PACK_COLUMNS = ("group", "num_tokens", "num_loss_tokens", "attention_cost")
_SCHEDULE_COLUMNS = ("epoch", "step", "micro_step", "group", "phase")
_METRIC_COLUMNS = ("num_tokens", "num_loss_tokens", "abr", "dbr", "tbr", "predicted_seconds")


def save_plan(plan: Plan, folder: Path) -> None:
    """Write the plan into ``folder``; until ``plan.json`` is there the folder holds no plan.

    Raises:
        DataError: the folder cannot be written.
    """
    (folder / PLAN_FILE).unlink(missing_ok=True)
    packs = {name: pa.array(getattr(plan.packs, name)) for name in _PACK_COLUMNS}
    packs["sample_ids"] = _lists(plan.packs.offsets, plan.packs.sample_ids)
    micro_steps = {name: pa.array(getattr(plan.schedule, name)) for name in _SCHEDULE_COLUMNS}
    micro_steps |= {name: pa.array(getattr(plan.micro_steps, name)) for name in _METRIC_COLUMNS}
    micro_steps["packs"] = _lists(plan.schedule.assignment_offsets, plan.schedule.assignment_packs)
    checksums = {}
    for name, columns in ((PACKS_FILE, packs), (MICRO_STEPS_FILE, micro_steps)):
        _write_table(folder / name, columns)
        checksums[name] = sha256_file(folder / name)
    write_json(
        folder / PLAN_FILE,
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "sha256": checksums,
            "spec": asdict(plan.spec),
            "phase_names": list(plan.schedule.phase_names),
            "metrics": plan.metrics,
        },
    )


def load_plan(folder: Path) -> Plan:
    """Read what :func:`save_plan` wrote; arrays are read-only views of memory-mapped files.

    Raises:
        ManifestError: there is no plan, it is of another version, or a file is damaged.
    """
    head = _read_head(folder)
    packs = _read_table(folder, PACKS_FILE, head)
    micro_steps = _read_table(folder, MICRO_STEPS_FILE, head)
    pack_offsets, sample_ids = _flat(packs, "sample_ids")
    assignment_offsets, assignment_packs = _flat(micro_steps, "packs")
    return Plan(
        spec=_spec(head["spec"]),
        packs=Packs(
            offsets=pack_offsets, sample_ids=sample_ids, **{name: _numpy(packs, name) for name in _PACK_COLUMNS}
        ),
        schedule=Schedule(
            phase_names=tuple(head["phase_names"]),
            assignment_offsets=assignment_offsets,
            assignment_packs=assignment_packs,
            **{name: _numpy(micro_steps, name) for name in _SCHEDULE_COLUMNS},
        ),
        micro_steps=MicroStepMetrics(**{name: _numpy(micro_steps, name) for name in _METRIC_COLUMNS}),
        metrics=head["metrics"],
    )


def _read_head(folder: Path) -> dict[str, Any]:
    path = folder / PLAN_FILE
    try:
        head = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ManifestError(f"{path}: there is no finished plan; run the planning stage again") from error
    except ValueError as error:
        raise ManifestError(f"{path}: is not valid JSON ({error}); run the planning stage again") from error
    if not isinstance(head, dict) or (head.get("format"), head.get("format_version")) != (FORMAT, FORMAT_VERSION):
        raise ManifestError(f"{path}: is not a plan of version {FORMAT_VERSION}; run the planning stage again")
    return head


def _read_table(folder: Path, name: str, head: dict[str, Any]) -> pa.RecordBatch:
    path = folder / name
    if not path.is_file() or sha256_file(path) != head["sha256"].get(name):
        raise ManifestError(f"{path}: is missing or differs from its checksum; run the planning stage again")
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


def _write_table(path: Path, columns: dict[str, pa.Array]) -> None:
    batch = pa.record_batch(columns)
    with atomic_write(path) as handle, pa.ipc.new_file(handle, batch.schema) as writer:
        writer.write_batch(batch)


def _lists(offsets: Int64, values: Int64) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))


def _flat(batch: pa.RecordBatch, name: str) -> tuple[Int64, Int64]:
    column = batch.column(name)
    return column.offsets.to_numpy(), column.values.to_numpy()


def _numpy(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(name).to_numpy()


def _spec(data: dict[str, Any]) -> PlanSpec:
    groups = tuple(PackingGroup(**group) for group in data["groups"])
    return PlanSpec(**{**data, "groups": groups, "curriculum": Curriculum(**data["curriculum"])})
