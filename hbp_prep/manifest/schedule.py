"""The schedule as flat arrays: micro-steps in training order, and which pack each DP rank runs in each."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbp_prep.errors import ManifestError
from hbp_prep.manifest.paths import inside
from hbp_prep.manifest.schema import SCHEDULE_FOLDER, FileEntry, Manifest
from hbp_prep.manifest.tables import ASSIGNMENTS_SCHEMA, MICRO_STEPS_SCHEMA, iterate_batches, open_arrow

Array = NDArray[Any]

_REPLANNED = re.compile(rf"{SCHEDULE_FOLDER}-[0-9a-f]{{12}}")


def replanned_schedules(folder: Path) -> list[Path]:
    """Schedule folders that replans have made: ``schedule-<12 hexadecimal digits>``; other names are the user's."""
    return [
        path
        for path in sorted(folder.glob(f"{SCHEDULE_FOLDER}-*"))
        if _REPLANNED.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    ]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """U micro-steps over S optimizer steps.

    Attributes:
        group, phase: int32[U], indices into the manifest's groups and into ``phase_names``.
        step_offsets: int64[S + 1]; step s has micro-steps ``step_offsets[s]`` to ``step_offsets[s + 1] - 1``.
        assignment_offsets: int64[U + 1]; DP rank d of micro-step u is assignment ``assignment_offsets[u] + d``.
        pack_id, shard, row: One per assignment; ``shard`` counts within the packing group.
    """

    epoch: Array
    step: Array
    micro_step: Array
    group: Array
    phase: Array
    phase_names: tuple[str, ...]
    num_tokens: Array
    num_loss_tokens: Array
    abr: Array
    dbr: Array
    tbr: Array
    predicted_seconds: Array
    step_offsets: NDArray[np.int64]
    assignment_offsets: NDArray[np.int64]
    pack_id: Array
    shard: Array
    row: Array

    def __len__(self) -> int:
        return len(self.step)

    def micro_steps_of(self, step: int) -> range:
        """Indices of the micro-steps of ``step``."""
        if not 0 <= step < len(self.step_offsets) - 1:
            raise IndexError(f"step {step} is not in a schedule of {len(self.step_offsets) - 1} steps")
        return range(int(self.step_offsets[step]), int(self.step_offsets[step + 1]))

    def assignment(self, micro_step: int, dp_rank: int) -> tuple[int, int, int]:
        """``(pack_id, shard, row)`` of a DP rank in the micro-step of that index."""
        first, end = int(self.assignment_offsets[micro_step]), int(self.assignment_offsets[micro_step + 1])
        if not 0 <= dp_rank < end - first:
            raise IndexError(f"dp_rank {dp_rank} is not in 0 to {end - first - 1}")
        index = first + dp_rank
        return int(self.pack_id[index]), int(self.shard[index]), int(self.row[index])


def load_schedule(folder: Path, manifest: Manifest) -> Schedule:
    """Read both files of the schedule; about 40 bytes of memory per assignment.

    Raises:
        ManifestError: they are damaged, steps or micro-steps are not numbered without gaps, or a micro-step has not
            one row for each DP rank of its packing group, in order.
    """
    entry = manifest.schedule
    path = inside(folder, entry.micro_steps.path)
    rows = _columns(path, entry.micro_steps, MICRO_STEPS_SCHEMA, manifest.fingerprint)
    group = _indices(path, rows["group"], tuple(group.name for group in manifest.groups), "packing group")
    phase = _indices(path, rows["phase"], entry.phases, "phase")
    step_offsets = _step_offsets(path, rows["step"], rows["micro_step"], manifest)
    dp_sizes = np.array([group.dp_size for group in manifest.groups], np.int64)[group]
    assignment_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(dp_sizes)])
    assignments_path = inside(folder, entry.assignments.path)
    assignments = _columns(assignments_path, entry.assignments, ASSIGNMENTS_SCHEMA, manifest.fingerprint)
    _check_assignments(assignments_path, assignments, rows, dp_sizes, assignment_offsets)
    return Schedule(
        **{name: rows[name] for name in MICRO_STEPS_SCHEMA.names if name not in ("group", "phase")},
        group=group,
        phase=phase,
        phase_names=entry.phases,
        step_offsets=step_offsets,
        assignment_offsets=assignment_offsets,
        **{name: assignments[name] for name in ("pack_id", "shard", "row")},
    )


def _columns(path: Path, entry: FileEntry, expected: pa.Schema, fingerprint: str) -> dict[str, Any]:
    """Whole columns: numpy arrays; dictionary columns as Arrow arrays of strings."""
    reader = open_arrow(path, expected, fingerprint=fingerprint)
    table = pa.Table.from_batches(list(iterate_batches(path, reader, expected)), schema=reader.schema)
    if table.num_rows != entry.rows:
        raise ManifestError(f"{path} has {table.num_rows} rows, the manifest says {entry.rows}")
    columns: dict[str, Any] = {}
    for name in expected.names:
        column = table.column(name)
        columns[name] = column if pa.types.is_dictionary(column.type) else column.to_numpy()
    return columns


def _indices(path: Path, column: pa.ChunkedArray, names: tuple[str, ...], what: str) -> NDArray[np.int32]:
    """Names of a dictionary column as indices into ``names``."""
    chunks = [np.zeros(0, np.int32)]
    for chunk in column.chunks:
        known = {name: index for index, name in enumerate(names)}
        translation = np.array([known.get(name, -1) for name in chunk.dictionary.to_pylist()], np.int32)
        chunks.append(translation[chunk.indices.to_numpy()])
    indices = np.concatenate(chunks)
    if (indices < 0).any():
        row = int(np.argmax(indices < 0))
        raise ManifestError(f"{path}: row {row}: the manifest knows no {what} {column[row].as_py()!r}")
    return indices


def _step_offsets(path: Path, step: Array, micro_step: Array, manifest: Manifest) -> NDArray[np.int64]:
    num_steps = manifest.schedule.num_steps
    starts = np.flatnonzero(np.diff(step, prepend=-1)) if len(step) else np.zeros(0, np.int64)
    if len(starts) != num_steps or not np.array_equal(step[starts], np.arange(len(starts))):
        raise ManifestError(f"{path}: optimizer steps are not numbered 0 to {num_steps - 1} in order")
    offsets = np.append(starts, len(step)).astype(np.int64)
    expected = np.arange(len(step)) - np.repeat(starts, np.diff(offsets))
    wrong = np.flatnonzero(micro_step != expected)
    if len(wrong):
        row = int(wrong[0])
        raise ManifestError(f"{path}: row {row}: micro_step is {micro_step[row]}, expected {expected[row]}")
    return offsets


def _check_assignments(
    path: Path, assignments: dict[str, Any], rows: dict[str, Any], dp_sizes: Array, offsets: NDArray[np.int64]
) -> None:
    """One row for each DP rank of each micro-step, in order."""
    if len(assignments["step"]) != offsets[-1]:
        raise ManifestError(
            f"{path} has {len(assignments['step'])} rows; the micro-steps have {offsets[-1]} DP ranks in all"
        )
    expected = {
        "step": np.repeat(rows["step"], dp_sizes),
        "micro_step": np.repeat(rows["micro_step"], dp_sizes),
        "dp_rank": np.arange(offsets[-1]) - np.repeat(offsets[:-1], dp_sizes),
    }
    for name, values in expected.items():
        wrong = np.flatnonzero(assignments[name] != values)
        if len(wrong):
            row = int(wrong[0])
            raise ManifestError(f"{path}: row {row}: {name} is {assignments[name][row]}, expected {values[row]}")
