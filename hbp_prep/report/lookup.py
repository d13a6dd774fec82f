"""Finding things in a prepared folder for ``hbp-prep inspect``: a sample's row, a pack's place in the schedule.

Reads the small tables only; tokens come through the reader. Costs one pass over samples.arrow or assignments.arrow,
well under a second for a million rows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hbp_prep.errors import ConfigError
from hbp_prep.manifest.reader import ManifestReader, MicroStep, Pack
from hbp_prep.manifest.schema import ASSIGNMENTS_NAME, SAMPLES_NAME
from hbp_prep.manifest.tables import ASSIGNMENTS_SCHEMA, SAMPLES_SCHEMA, iterate_batches, open_arrow


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a pack is trained first."""

    step: int
    micro_step: int
    dp_rank: int


def place_of_pack(reader: ManifestReader, pack_id: int) -> Place:
    """The first place in the schedule that holds ``pack_id``.

    Raises:
        ConfigError: there is no such pack.
    """
    path = reader.folder / reader.manifest.schedule.assignments.path
    arrow = open_arrow(path, ASSIGNMENTS_SCHEMA, fingerprint=reader.manifest.fingerprint)
    for batch in iterate_batches(path, arrow, ASSIGNMENTS_SCHEMA):
        rows = np.flatnonzero(batch.column("pack_id").to_numpy() == pack_id)
        if len(rows):
            first = batch.slice(int(rows[0]), 1).to_pylist()[0]
            return Place(step=first["step"], micro_step=first["micro_step"], dp_rank=first["dp_rank"])
    num_packs = sum(group.num_packs for group in reader.manifest.groups)
    raise ConfigError(f"there is no pack {pack_id} in {ASSIGNMENTS_NAME}; pack ids are 0 to {num_packs - 1}")


def pack_by_id(reader: ManifestReader, pack_id: int) -> tuple[Pack, Place]:
    """The pack of that id and where it is trained first.

    Raises:
        ConfigError: there is no such pack.
    """
    place = place_of_pack(reader, pack_id)
    return reader.pack(place.step, place.micro_step, place.dp_rank), place


def sample_rows(reader: ManifestReader, sample_ids: list[int]) -> list[dict[str, Any]]:
    """Rows of samples.arrow as dictionaries, in the order asked for.

    Raises:
        ConfigError: there is no such sample.
    """
    path = reader.folder / reader.manifest.samples.path
    arrow = open_arrow(path, SAMPLES_SCHEMA, fingerprint=reader.manifest.fingerprint)
    wanted = np.array(sample_ids, np.int64)
    found: dict[int, dict[str, Any]] = {}
    for batch in iterate_batches(path, arrow, SAMPLES_SCHEMA):
        rows = np.flatnonzero(np.isin(batch.column("sample_id").to_numpy(), wanted))
        for row in batch.take(pa.array(rows)).to_pylist():
            found[row["sample_id"]] = row
    for sample_id in sample_ids:
        if sample_id not in found:
            last = reader.manifest.totals.num_samples - 1
            raise ConfigError(f"there is no sample {sample_id} in {SAMPLES_NAME}; sample ids are 0 to {last}")
    return [found[sample_id] for sample_id in sample_ids]


def micro_steps_of(reader: ManifestReader, step: int) -> list[MicroStep]:
    """The micro-steps of an optimizer step.

    Raises:
        ConfigError: there is no such step.
    """
    if not 0 <= step < reader.num_steps:
        raise ConfigError(f"there is no step {step}; steps are 0 to {reader.num_steps - 1}")
    return list(reader.micro_steps(step))


def packs_of_micro_step(reader: ManifestReader, step: int, micro_step: int) -> tuple[MicroStep, list[Pack]]:
    """A micro-step and its packs by DP rank.

    Raises:
        ConfigError: there is no such step or micro-step.
    """
    every = micro_steps_of(reader, step)
    if not 0 <= micro_step < len(every):
        raise ConfigError(f"step {step} has no micro-step {micro_step}; its micro-steps are 0 to {len(every) - 1}")
    chosen = every[micro_step]
    return chosen, [reader.pack(step, micro_step, dp_rank) for dp_rank in range(chosen.dp_size)]
