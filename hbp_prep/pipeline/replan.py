"""Another schedule over the same shards: another world size, SP degrees, seed or curriculum. No token is read.

Packs stay as they are. The new schedule is written into a folder of its own, ``schedule-<contents>``, then the manifest
is replaced in one rename, then the old schedule is removed: a crash at any moment leaves a folder that readers and
``verify`` take, with the old schedule or the new one. Cost: one pass over ``samples.arrow``, and the report; no shard
is opened.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hbp_prep import files
from hbp_prep.cost.model import CostModel
from hbp_prep.errors import ConfigError, ManifestError
from hbp_prep.manifest.document import load_manifest, write_manifest
from hbp_prep.manifest.paths import inside
from hbp_prep.manifest.reader import check_file
from hbp_prep.manifest.schedule import replanned_schedules
from hbp_prep.manifest.schema import SCHEDULE_FOLDER, FileEntry, Manifest
from hbp_prep.manifest.tables import (
    ASSIGNMENTS_SCHEMA,
    MICRO_STEPS_SCHEMA,
    SAMPLES_SCHEMA,
    iterate_batches,
    open_arrow,
    with_metadata,
)
from hbp_prep.manifest.writer import write_table
from hbp_prep.pipeline.folder import OutputFolder, refuse_filled
from hbp_prep.pipeline.load import load_recipe, resolved_yaml
from hbp_prep.pipeline.recipe import CurriculumPart, Recipe
from hbp_prep.planning.assemble import packs_from, schedule_packs
from hbp_prep.planning.types import Curriculum, Int64, PackingGroup, Plan, PlanSpec, Samples
from hbp_prep.planning.validate import validate_spec
from hbp_prep.progress import Progress
from hbp_prep.report.write import write_report
from hbp_prep.sharding.schedule_rows import assignment_batches, micro_step_batches, places_in
from hbp_prep.suggest import did_you_mean

DEFAULT_STRATEGY = "bfs"
"""Stands in the plan's settings; packs are not made anew."""

_RECIPE_NAME = "resolved.yaml"


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a replan changes; ``None`` keeps what the folder has.

    Attributes:
        sp_degrees: {packing group's name: SP degree}; groups not named keep theirs.
        curriculum: Replaces the folder's; the default is none, as in a recipe without one.
    """

    world_size: int | None = None
    sp_degrees: Mapping[str, int] | None = None
    seed: int | None = None
    micro_steps_per_step: int | None = None
    epochs: int | None = None
    curriculum: Curriculum = field(default_factory=Curriculum)


def replan(out: Path, changes: Changes, progress: Progress, output: Path | None = None) -> Manifest:
    """Write a new schedule, manifest and report over the shards of ``out``.

    Args:
        out: A finished folder.
        output: An empty or new folder, which gets hard links to the shards (copies on another file system); ``None``
            changes ``out`` in place.

    Raises:
        ManifestError: ``out`` is unfinished or damaged.
        ConfigError: a setting is wrong, or ``output`` is not empty.
        PlanError: the curriculum asks for more than the packs have.
    """
    load_manifest(out)  # a folder that is none of ours is not even locked
    if output is not None:
        refuse_filled(output)
    with OutputFolder(out).lock():
        manifest = load_manifest(out)
        for entry in manifest.files():
            check_file(out, entry, checksum=entry == manifest.samples)  # the others are not read
        plan = _new_plan(out, manifest, changed_spec(manifest, changes, _recipe(out)))
        if output is None:
            return _commit(out, manifest, plan, progress)
        with OutputFolder(output).lock():
            for entry in manifest.files():
                if entry not in (manifest.schedule.micro_steps, manifest.schedule.assignments):
                    _link(inside(out, entry.path), output / entry.path)
            if (out / _RECIPE_NAME).exists():
                files.write_bytes(output / _RECIPE_NAME, (out / _RECIPE_NAME).read_bytes())
            return _commit(output, manifest, plan, progress)


def changed_spec(manifest: Manifest, changes: Changes, recipe: Recipe | None) -> PlanSpec:
    """The settings of the new schedule, checked; ``recipe`` is the folder's own, whose batching order it keeps.

    Raises:
        ConfigError: an unknown packing group, or values that do not fit each other.
    """
    degrees = dict(changes.sp_degrees or {})
    names = [group.name for group in manifest.groups]
    for name in degrees:
        if name not in names:
            raise ConfigError(
                f"--groups: {name!r} is no packing group of this folder ({', '.join(names)})"
                f"{did_you_mean(name, names)}; lengths cannot change without packing anew"
            )
    spec = PlanSpec(
        groups=tuple(
            PackingGroup(
                name=group.name,
                pack_length=group.pack_length,
                sp_degree=degrees.get(group.name, group.sp_degree),
                gc_layers=group.gc_layers,
            )
            for group in manifest.groups
        ),
        world_size=changes.world_size or manifest.world_size,
        strategy=DEFAULT_STRATEGY,
        order=recipe.batching.order if recipe else "stratified",
        micro_steps_per_step=changes.micro_steps_per_step or manifest.schedule.micro_steps_per_step,
        curriculum=changes.curriculum,
        epochs=changes.epochs or manifest.schedule.epochs,
        seed=manifest.seed if changes.seed is None else changes.seed,
    )
    validate_spec(spec)
    return spec


def _new_plan(out: Path, manifest: Manifest, spec: PlanSpec) -> Plan:
    samples, pack_of_sample = _stored_samples(out, manifest)
    num_packs = [group.num_packs for group in manifest.groups]
    group_of_pack = np.repeat(np.arange(len(num_packs), dtype=np.int16), num_packs)
    packs = packs_from(samples, pack_of_sample, group_of_pack)
    return schedule_packs(spec, samples, packs, CostModel.from_dict(manifest.cost_model))


def _stored_samples(out: Path, manifest: Manifest) -> tuple[Samples, Int64]:
    """Lengths and sources of samples.arrow, and the pack of each sample."""
    path = inside(out, manifest.samples.path)
    reader = open_arrow(path, SAMPLES_SCHEMA, fingerprint=manifest.fingerprint)
    table = pa.Table.from_batches(list(iterate_batches(path, reader, SAMPLES_SCHEMA)), schema=reader.schema)
    table = table.unify_dictionaries().combine_chunks()
    pack_of_sample = table.column("pack_id").to_numpy()
    num_packs = sum(group.num_packs for group in manifest.groups)
    used = np.unique(pack_of_sample)
    if not np.array_equal(used, np.arange(num_packs)):
        raise ManifestError(f"{path} does not name the manifest's {num_packs} packs; hbp-prep verify says where")
    source = table.column("source").chunk(0)
    samples = Samples(
        num_tokens=table.column("num_tokens").to_numpy(),
        num_loss_tokens=table.column("num_loss_tokens").to_numpy(),
        source=source.indices.to_numpy().astype(np.int16),
        source_names=tuple(source.dictionary.to_pylist()),
    )
    return samples, pack_of_sample


def _commit(out: Path, old: Manifest, plan: Plan, progress: Progress) -> Manifest:
    files.remove_stray_temps(out)
    shards = [(index, shard.rows) for index, group in enumerate(old.groups) for shard in group.shards]
    micro_steps = with_metadata(MICRO_STEPS_SCHEMA, fingerprint=old.fingerprint)
    assignments = with_metadata(ASSIGNMENTS_SCHEMA, fingerprint=old.fingerprint)
    key = hashlib.sha256(plan.schedule.assignment_packs.tobytes() + repr(plan.spec).encode()).hexdigest()[:12]
    folder = f"{SCHEDULE_FOLDER}-{key}"
    steps_name, assignments_name = f"{folder}/micro_steps.arrow", f"{folder}/assignments.arrow"
    schedule = replace(
        old.schedule,
        micro_steps=_entry(out, steps_name, micro_steps, micro_step_batches(plan, micro_steps)),
        assignments=_entry(
            out, assignments_name, assignments, assignment_batches(plan, places_in(shards), assignments)
        ),
        num_steps=int(plan.schedule.step[-1]) + 1,
        num_micro_steps=len(plan.schedule),
        micro_steps_per_step=plan.spec.micro_steps_per_step,
        phases=plan.schedule.phase_names,
        epochs=plan.spec.epochs,
        replanned=True,
    )
    manifest = replace(
        old,
        seed=plan.spec.seed,
        world_size=plan.spec.world_size,
        groups=tuple(
            replace(group, sp_degree=plan.spec.groups[index].sp_degree, dp_size=plan.spec.dp_size(index))
            for index, group in enumerate(old.groups)
        ),
        schedule=schedule,
        metrics=dict(plan.metrics),
    )
    write_manifest(out, manifest)
    _remove_other_schedules(out, folder)
    _update_recipe(out, plan.spec)
    write_report(out, progress)
    return manifest


def _entry(out: Path, name: str, schema: pa.Schema, batches: Any) -> FileEntry:
    return FileEntry(path=name, **asdict(write_table(out / name, schema, batches)))


def _remove_other_schedules(out: Path, kept: str) -> None:
    for path in (out / SCHEDULE_FOLDER, *replanned_schedules(out)):
        if path.is_dir() and path.name != kept:
            shutil.rmtree(path)


def _update_recipe(out: Path, spec: PlanSpec) -> None:
    """Let ``resolved.yaml``, where there is one, name the cluster that the folder is for now."""
    recipe = _recipe(out)
    if recipe is None:
        return
    groups = [
        group.model_copy(update={"sp_degree": planned.sp_degree})
        for group, planned in zip(recipe.packing.groups, spec.groups, strict=True)
    ]
    changed: Recipe = recipe.model_copy(
        update={
            "seed": spec.seed,
            "epochs": spec.epochs,
            "packing": recipe.packing.model_copy(update={"groups": groups}),
            "cluster": recipe.cluster.model_copy(update={"world_size": spec.world_size}),
            "batching": recipe.batching.model_copy(update={"micro_steps_per_step": spec.micro_steps_per_step}),
            "curriculum": CurriculumPart(**asdict(spec.curriculum)),
        }
    )
    files.write_bytes(out / _RECIPE_NAME, resolved_yaml(changed).encode())


def _recipe(out: Path) -> Recipe | None:
    path = out / _RECIPE_NAME
    return load_recipe(path) if path.exists() else None


def _link(source: Path, target: Path) -> None:
    """A hard link (shards are never changed in place), or a copy where there can be none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        with open(source, "rb") as reading, files.atomic_write(target) as writing:
            shutil.copyfileobj(reading, writing)
