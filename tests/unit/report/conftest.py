"""A small finished folder, written by the real planner and the real writers from made-up tokens."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml

from hbp_prep.cost.model import CostModel
from hbp_prep.cost.presets import HARDWARE, MODELS
from hbp_prep.manifest.schema import FileEntry, GroupEntry, Manifest, ScheduleEntry, ShardEntry, SourceTotals, Totals
from hbp_prep.manifest.tables import (
    ASSIGNMENTS_SCHEMA,
    MICRO_STEPS_SCHEMA,
    REJECTED_SCHEMA,
    SAMPLES_SCHEMA,
    with_metadata,
)
from hbp_prep.manifest.writer import PackBatch, ShardWriter, write_manifest, write_table
from hbp_prep.planning.planner import make_plan
from hbp_prep.planning.types import Curriculum, PackingGroup, PlanSpec, Samples

FINGERPRINT = "f" * 32
EVIL = "<script>alert('x')</script> [bold]&amp;"
SOURCES = ("short", EVIL)
SEED = 7


def samples_of(num_short=900, num_long=40):
    rng = np.random.default_rng(SEED)
    short = np.clip(rng.lognormal(5.0, 0.9, num_short), 8, 2000)
    long = np.clip(rng.lognormal(8.6, 0.5, num_long), 2100, 16384)
    lengths = np.concatenate([short, long]).astype(np.int32)
    return Samples(
        num_tokens=lengths,
        num_loss_tokens=np.maximum(lengths // 3, 1).astype(np.int32),
        source=np.repeat([0, 1], [num_short, num_long]).astype(np.int16),
        source_names=SOURCES,
    )


def spec_of(world_size=4):
    return PlanSpec(
        groups=(
            PackingGroup(name="2K", pack_length=2048, sp_degree=1),
            PackingGroup(name="16K", pack_length=16384, sp_degree=2, gc_layers=3),
        ),
        world_size=world_size,
        strategy="bfs",
        order="stratified",
        micro_steps_per_step=4,
        curriculum=Curriculum(),
        epochs=1,
        seed=SEED,
    )


def token_of(sample_id, position):
    """Made-up token ids from which a test can tell sample and position."""
    return sample_id * 20_000 + position


def entry(path, written):
    return {"path": path, "rows": written.rows, "bytes": written.bytes, "sha256": written.sha256}


def table(folder, path, schema, columns):
    schema = with_metadata(schema, fingerprint=FINGERPRINT)
    arrays = [
        pa.array(columns[field.name]).dictionary_encode().cast(field.type)
        if pa.types.is_dictionary(field.type)
        else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return FileEntry(**entry(path, write_table(folder / path, schema, [pa.record_batch(arrays, schema=schema)])))


def write_shards(folder, spec, samples, packs):
    """One shard per packing group; the trained tokens are the last ones of each sample."""
    entries = []
    for index, group in enumerate(spec.groups):
        own = np.flatnonzero(packs.group == index)
        ids = packs.sample_ids[packs.offsets[own[0]] : packs.offsets[own[-1] + 1]]
        lengths = samples.num_tokens[ids]
        batch = PackBatch(
            pack_ids=own.astype(np.int64),
            segment_offsets=packs.offsets[own[0] : own[-1] + 2] - packs.offsets[own[0]],
            sample_ids=ids,
            seq_lengths=lengths,
            input_ids=np.concatenate([token_of(i, np.arange(samples.num_tokens[i])) for i in ids]).astype(np.int32),
            loss_mask=np.concatenate(
                [np.arange(samples.num_tokens[i])[::-1] < samples.num_loss_tokens[i] for i in ids]
            ),
        )
        path = f"shards/{group.name}/part-00000.arrow"
        with ShardWriter(folder / path, group=group.name, fingerprint=FINGERPRINT) as writer:
            writer.write(batch)
        shard = ShardEntry(**entry(path, writer.written), num_tokens=int(lengths.sum()))
        entries.append(
            GroupEntry(
                name=group.name,
                pack_length=group.pack_length,
                sp_degree=group.sp_degree,
                dp_size=spec.dp_size(index),
                gc_layers=group.gc_layers,
                num_packs=len(own),
                num_tokens=int(lengths.sum()),
                num_loss_tokens=int(samples.num_loss_tokens[ids].sum()),
                shards=(shard,),
            )
        )
    return tuple(entries)


def write_schedule(folder, spec, plan):
    schedule, figures = plan.schedule, plan.micro_steps
    names = [group.name for group in spec.groups]
    micro_steps = table(
        folder,
        "schedule/micro_steps.arrow",
        MICRO_STEPS_SCHEMA,
        {
            "epoch": schedule.epoch,
            "step": schedule.step,
            "micro_step": schedule.micro_step,
            "group": [names[index] for index in schedule.group],
            "phase": [schedule.phase_names[index] for index in schedule.phase],
            **{
                name: getattr(figures, name).astype(np.int64 if name.startswith("num") else np.float32)
                for name in ("num_tokens", "num_loss_tokens", "abr", "dbr", "tbr", "predicted_seconds")
            },
        },
    )
    sizes = np.diff(schedule.assignment_offsets)
    first_pack = np.searchsorted(plan.packs.group, np.arange(len(names)))
    packs = schedule.assignment_packs
    assignments = table(
        folder,
        "schedule/assignments.arrow",
        ASSIGNMENTS_SCHEMA,
        {
            "step": np.repeat(schedule.step, sizes),
            "micro_step": np.repeat(schedule.micro_step, sizes),
            "dp_rank": np.concatenate([np.arange(size) for size in sizes]).astype(np.int32),
            "pack_id": packs,
            "shard": np.zeros(len(packs), np.int32),
            "row": (packs - first_pack[plan.packs.group[packs]]).astype(np.int32),
        },
    )
    return ScheduleEntry(
        micro_steps=micro_steps,
        assignments=assignments,
        num_steps=int(schedule.step[-1]) + 1,
        num_micro_steps=len(schedule),
        micro_steps_per_step=spec.micro_steps_per_step,
        phases=schedule.phase_names,
        epochs=spec.epochs,
    )


def write_samples(folder, spec, samples, packs):
    pack_of = np.empty(len(samples), np.int64)
    pack_of[packs.sample_ids] = np.repeat(np.arange(len(packs)), np.diff(packs.offsets))
    names = [group.name for group in spec.groups]
    return table(
        folder,
        "samples.arrow",
        SAMPLES_SCHEMA,
        {
            "sample_id": np.arange(len(samples)),
            "source": [SOURCES[index] for index in samples.source],
            "file": [f"/data/{SOURCES[index]}.jsonl" for index in samples.source],
            "row": np.arange(len(samples)),
            "original_id": [None if index % 2 else f"id-{index} {EVIL}" for index in range(len(samples))],
            "num_tokens": samples.num_tokens,
            "num_loss_tokens": samples.num_loss_tokens,
            "truncated_from": [None if index != 5 else 99_999 for index in range(len(samples))],
            "group": [names[packs.group[pack]] for pack in pack_of],
            "pack_id": pack_of,
        },
    )


def build_folder(folder: Path, *, rejected=True, resolved=True) -> Path:
    samples, spec = samples_of(), spec_of()
    cost = CostModel.build(MODELS["llama3.1-8b"], HARDWARE["h100-80g"], gpus_per_node=4)
    plan = make_plan(spec, samples, cost)
    reasons = ["too_long", "no_loss_tokens", "too_long"] if rejected else []
    rejected_entry = table(
        folder,
        "rejected.arrow",
        REJECTED_SCHEMA,
        {
            "file": pa.array([f"/data/{EVIL}.jsonl" for _ in reasons], pa.string()),
            "row": np.arange(10_000, 10_000 + len(reasons)),
            "source": pa.array([EVIL for _ in reasons], pa.string()),
            "reason": pa.array(reasons, pa.string()),
            "detail": pa.array([f"because {EVIL}" for _ in reasons], pa.string()),
        },
    )
    totals = [
        SourceTotals(
            num_samples=int((samples.source == index).sum()),
            num_tokens=int(samples.num_tokens[samples.source == index].sum()),
            num_loss_tokens=int(samples.num_loss_tokens[samples.source == index].sum()),
        )
        for index in range(len(SOURCES))
    ]
    manifest = Manifest(
        fingerprint=FINGERPRINT,
        created_by={"hbp-prep": "0.1"},
        seed=SEED,
        tokenizer={"name": f"tok {EVIL}", "vocab_size": 2**31 - 1, "fingerprint": "abc"},
        world_size=spec.world_size,
        gpus_per_node=4,
        groups=write_shards(folder, spec, samples, plan.packs),
        schedule=write_schedule(folder, spec, plan),
        samples=write_samples(folder, spec, samples, plan.packs),
        rejected=rejected_entry,
        totals=Totals(
            num_samples=len(samples),
            num_tokens=int(samples.num_tokens.sum()),
            num_loss_tokens=int(samples.num_loss_tokens.sum()),
            rows_read=len(samples) + len(reasons),
            num_rejected=len(reasons),
            rejected_by_reason={reason: reasons.count(reason) for reason in reasons},
            by_source=dict(zip(SOURCES, totals, strict=True)),
        ),
        metrics=json.loads(json.dumps(plan.metrics)),
        model={"name": cost.model.name},
        cost_model=cost.to_dict(),
    )
    if resolved:
        recipe = {"name": f"run {EVIL}", "sources": [{"name": name, "weight": 1.0, "limit": None} for name in SOURCES]}
        (folder / "resolved.yaml").write_text(yaml.safe_dump(recipe))
    write_manifest(folder, manifest)
    return folder


@pytest.fixture(scope="session")
def builder():
    return build_folder


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished folder; tests must not change it."""
    return build_folder(tmp_path_factory.mktemp("finished"))
