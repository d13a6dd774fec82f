"""What the planner reads and what it decides, as flat arrays. It sees lengths only, never tokens.

Glossary: ``dp_size = world_size // sp_degree`` of a packing group; a micro-step is one pack per DP rank, all of one
packing group; a step is the micro-steps between two optimizer updates.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int16 = NDArray[np.int16]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

MOST_GPUS = 10_000_000
EMPTY_PACK = -1
"""Stands for a pack where a DP rank of a micro-step has nothing to do."""


@dataclass(frozen=True, kw_only=True)
class PackingGroup:
    """A packing length with its training setting.

    Attributes:
        name: Folder name of its shards, e.g. ``16K``.
        pack_length: Tokens that a pack may hold; a multiple of ``sp_degree``.
        sp_degree: GPUs that share one pack (Ulysses).
        gc_layers: Layers with gradient checkpointing.
    """

    name: str
    pack_length: int
    sp_degree: int
    gc_layers: int = 0


@dataclass(frozen=True, kw_only=True)
class Curriculum:
    """In what order packing groups come.

    Attributes:
        kind: ``none`` (all groups in proportion throughout); ``two_phase`` (first the shortest packing group only,
            then all groups in proportion); ``alternate`` (the same first phase, then whole steps of long groups and
            whole steps of short ones in turn, evenly spread: the paper's second phase); ``ramp`` (the longest group
            allowed grows: as many phases as groups).
        first_phase_steps: Optimizer steps of the first phase (of ``ramp``: of every phase but the last); or ``None``.
        first_phase_fraction: The same as a fraction (0 to 1) of the steps that the shortest group can fill.
    """

    kind: str = "none"
    first_phase_steps: int | None = None
    first_phase_fraction: float | None = None


@dataclass(frozen=True, kw_only=True)
class PlanSpec:
    """Everything that a plan depends on besides the lengths.

    Attributes:
        groups: Ascending by pack_length, lengths distinct.
        strategy: Packing strategy, ``balanced`` or a key of ``planning.strategies.STRATEGIES``.
        order: How packs become micro-steps and steps: ``stratified`` (sorted by attention cost into micro-steps, steps
            draw one from each stratum), ``sorted`` (ascending cost, in that order) or ``random``.
        micro_steps_per_step: Optimizer steps have this many micro-steps, or one fewer where it does not divide.
    """

    groups: tuple[PackingGroup, ...]
    world_size: int
    strategy: str
    order: str
    micro_steps_per_step: int
    curriculum: Curriculum
    epochs: int
    seed: int

    def dp_size(self, group: int) -> int:
        """DP size of ``groups[group]``."""
        return self.world_size // self.groups[group].sp_degree


@dataclass(frozen=True, kw_only=True)
class Samples:
    """What the planner knows of N samples; sample_id is the position.

    Attributes:
        num_tokens: int32[N], each at least 1 and at most the longest packing length.
        num_loss_tokens: int32[N].
        source: int16[N], indices into ``source_names``.
    """

    num_tokens: Int32
    num_loss_tokens: Int32
    source: Int16
    source_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.num_tokens)


@dataclass(frozen=True, kw_only=True)
class Packs:
    """P packs over N samples. pack_id is the position: packing groups ascending, within one in order of first use.

    Attributes:
        group: int16[P], index into ``PlanSpec.groups``, ascending.
        offsets: int64[P + 1]; pack p holds ``sample_ids[offsets[p]:offsets[p + 1]]``, at least one sample.
        sample_ids: int64[N], a permutation of 0 .. N - 1.
        num_tokens: int32[P].
        num_loss_tokens: int32[P].
        attention_cost: int64[P], sum of len^2.
    """

    group: Int16
    offsets: Int64
    sample_ids: Int64
    num_tokens: Int32
    num_loss_tokens: Int32
    attention_cost: Int64

    def __len__(self) -> int:
        return len(self.group)

    def of_samples(self) -> Int32:
        """int32[N], the pack of every sample."""
        packs = np.empty(len(self.sample_ids), dtype=np.int32)
        packs[self.sample_ids] = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.offsets))
        return packs


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """U micro-steps in training order, over all epochs.

    Attributes:
        epoch: int16[U], from 0.
        step: int32[U], optimizer step over the whole run, from 0, ascending without gaps.
        micro_step: int16[U], within its step, from 0.
        group: int16[U], index into ``PlanSpec.groups``.
        phase: int16[U], index into ``phase_names``.
        assignment_offsets: int64[U + 1]; DP rank d of micro-step u has pack
            ``assignment_packs[assignment_offsets[u] + d]``.
        assignment_packs: int64[...], pack ids, or ``EMPTY_PACK``; per epoch every pack exactly once.
    """

    epoch: Int16
    step: Int32
    micro_step: Int16
    group: Int16
    phase: Int16
    phase_names: tuple[str, ...]
    assignment_offsets: Int64
    assignment_packs: Int64

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, kw_only=True)
class MicroStepMetrics:
    """Per micro-step figures, each an array of U."""

    num_tokens: Int64
    num_loss_tokens: Int64
    abr: Float64
    dbr: Float64
    tbr: Float64
    predicted_seconds: Float64


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A finished plan. ``metrics`` is the plain dictionary described in docs/metrics.md."""

    spec: PlanSpec
    packs: Packs
    schedule: Schedule
    micro_steps: MicroStepMetrics
    metrics: dict[str, object]
