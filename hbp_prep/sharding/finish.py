"""The end of a run: schedule, sample table, rejected rows, and last the manifest, which makes the folder whole.

Cost: the sample table is streamed unit by unit; memory of about 10 bytes per sample and 40 per pack.
"""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hbp_prep.errors import DataError
from hbp_prep.files import remove_stray_temps
from hbp_prep.manifest.schedule import replanned_schedules
from hbp_prep.manifest.schema import (
    ASSIGNMENTS_NAME,
    MANIFEST_NAME,
    MICRO_STEPS_NAME,
    REJECTED_NAME,
    SAMPLES_NAME,
    SCHEDULE_FOLDER,
    FileEntry,
    GroupEntry,
    Manifest,
    ScheduleEntry,
    Totals,
)
from hbp_prep.manifest.tables import (
    ASSIGNMENTS_SCHEMA,
    MICRO_STEPS_SCHEMA,
    REJECTED_SCHEMA,
    SAMPLES_SCHEMA,
    check_columns,
    with_metadata,
)
from hbp_prep.manifest.writer import write_manifest, write_table
from hbp_prep.planning.types import Plan
from hbp_prep.sharding.sample_rows import sample_batches, totals_by_source
from hbp_prep.sharding.schedule_rows import assignment_batches, micro_step_batches, places_in
from hbp_prep.sharding.shards import WrittenShard
from hbp_prep.tokenization.store import TokenStore
from hbp_prep.tokenization.table import SampleTable


def finish(
    out: Path,
    *,
    plan: Plan,
    table: SampleTable,
    store_folder: Path,
    file_names: Sequence[str],
    source_names: Sequence[str],
    rejected_path: Path,
    rows_read: int,
    shards: Sequence[WrittenShard],
    tokenizer: Mapping[str, Any],
    gpus_per_node: int,
    model: Mapping[str, Any],
    cost_model: Mapping[str, Any],
    fingerprint: str,
    created_by: Mapping[str, Any],
) -> Manifest:
    """Write everything that a folder with finished shards lacks. World size and seed are the plan's.

    Args:
        file_names, source_names: What ``table.file`` and ``table.source`` count.
        rejected_path: The tokenization room's ``rejected.arrow``.
        rows_read: Input rows of all files.
        shards: What ``write_shards`` returned for this plan.
        tokenizer: At least ``name`` and ``vocab_size``.
        fingerprint: The one that the shards carry.
        created_by: Name -> version.

    Returns:
        The manifest as written.

    Raises:
        DataError: the token store or ``rejected_path`` is damaged, or the folder cannot be written.
        ManifestError: an argument does not make a valid manifest.
    """
    (out / MANIFEST_NAME).unlink(missing_ok=True)
    remove_stray_temps(out)
    _remove_strays(out)

    def write(name: str, schema: pa.Schema, batches: Any) -> FileEntry:
        full_schema = with_metadata(schema, fingerprint=fingerprint)
        return FileEntry(path=name, **asdict(write_table(out / name, full_schema, batches(full_schema))))

    rejected_by_reason: Counter[str] = Counter()
    places = places_in((shard.group, shard.entry.rows) for shard in shards)
    micro_steps = write(MICRO_STEPS_NAME, MICRO_STEPS_SCHEMA, lambda schema: micro_step_batches(plan, schema))
    assignments = write(ASSIGNMENTS_NAME, ASSIGNMENTS_SCHEMA, lambda schema: assignment_batches(plan, places, schema))
    samples = write(
        SAMPLES_NAME,
        SAMPLES_SCHEMA,
        lambda schema: sample_batches(plan, table, TokenStore(store_folder), file_names, source_names, schema),
    )
    rejected = write(
        REJECTED_NAME, REJECTED_SCHEMA, lambda schema: _rejected_batches(rejected_path, schema, rejected_by_reason)
    )
    by_source = totals_by_source(table, source_names)
    manifest = Manifest(
        fingerprint=fingerprint,
        created_by=dict(created_by),
        seed=plan.spec.seed,
        tokenizer=dict(tokenizer),
        world_size=plan.spec.world_size,
        gpus_per_node=gpus_per_node,
        groups=_group_entries(plan, shards),
        schedule=_schedule_entry(plan, micro_steps, assignments),
        samples=samples,
        rejected=rejected,
        totals=Totals(
            num_samples=len(table),
            num_tokens=sum(source.num_tokens for source in by_source.values()),
            num_loss_tokens=sum(source.num_loss_tokens for source in by_source.values()),
            rows_read=rows_read,
            num_rejected=rejected.rows,
            rejected_by_reason=dict(rejected_by_reason),
            by_source=by_source,
            lost_tokens=dict(table.lost_tokens),
        ),
        metrics=dict(plan.metrics),
        model=dict(model),
        cost_model=dict(cost_model),
    )
    write_manifest(out, manifest)
    return manifest


def _remove_strays(out: Path) -> None:
    """Remove schedules of replans, and files in ``schedule/`` that are not of this format."""
    for folder in replanned_schedules(out):
        shutil.rmtree(folder)
    wanted = {out / MICRO_STEPS_NAME, out / ASSIGNMENTS_NAME}
    for path in (out / SCHEDULE_FOLDER).glob("*"):
        if path not in wanted and not path.is_dir():
            path.unlink()


def _rejected_batches(path: Path, schema: pa.Schema, by_reason: Counter[str]) -> Iterator[pa.RecordBatch]:
    """Batches of the tokenization room's file, counted into ``by_reason``."""
    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            check_columns(path, reader.schema, REJECTED_SCHEMA)
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                by_reason.update(batch.column("reason").to_pylist())
                yield batch.replace_schema_metadata(schema.metadata)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: missing or damaged ({error}); run again") from error


def _group_entries(plan: Plan, shards: Sequence[WrittenShard]) -> tuple[GroupEntry, ...]:
    packs = plan.packs
    entries = []
    for index, group in enumerate(plan.spec.groups):
        mine = packs.group == index
        entries.append(
            GroupEntry(
                name=group.name,
                pack_length=group.pack_length,
                sp_degree=group.sp_degree,
                dp_size=plan.spec.dp_size(index),
                gc_layers=group.gc_layers,
                num_packs=int(np.count_nonzero(mine)),
                num_tokens=int(packs.num_tokens[mine].sum(dtype=np.int64)),
                num_loss_tokens=int(packs.num_loss_tokens[mine].sum(dtype=np.int64)),
                shards=tuple(shard.entry for shard in shards if shard.group == index),
            )
        )
    return tuple(entries)


def _schedule_entry(plan: Plan, micro_steps: FileEntry, assignments: FileEntry) -> ScheduleEntry:
    steps = plan.schedule.step
    return ScheduleEntry(
        micro_steps=micro_steps,
        assignments=assignments,
        num_steps=int(steps[-1]) + 1,
        num_micro_steps=len(steps),
        micro_steps_per_step=plan.spec.micro_steps_per_step,
        phases=plan.schedule.phase_names,
        epochs=plan.spec.epochs,
    )
