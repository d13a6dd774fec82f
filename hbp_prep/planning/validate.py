"""Checks before planning: the settings by themselves, and the samples against them. Every fault is one sentence."""

import numpy as np

from hbp_prep.errors import ConfigError, PlanError
from hbp_prep.planning.curriculum import PHASES
from hbp_prep.planning.strategies import BALANCED, STRATEGIES
from hbp_prep.planning.types import MOST_GPUS, Curriculum, PackingGroup, PlanSpec, Samples
from hbp_prep.suggest import did_you_mean

ORDERS = ("stratified", "sorted", "random")
MOST_INT16 = int(np.iinfo(np.int16).max)
MOST_INT32 = int(np.iinfo(np.int32).max)


def validate_spec(spec: PlanSpec) -> None:
    """Check settings that need no samples.

    Raises:
        ConfigError: a value is unknown, out of range, or does not divide another.
    """
    for key, value, known in (
        ("packing.strategy", spec.strategy, (BALANCED, *STRATEGIES)),
        ("batching.order", spec.order, ORDERS),
        ("curriculum.kind", spec.curriculum.kind, PHASES),
    ):
        if value not in known:
            raise ConfigError(f"{key}: {value!r} is not known{did_you_mean(value, known)}")
    for key, number, least, most in (
        ("cluster.world_size", spec.world_size, 1, MOST_GPUS),
        ("batching.micro_steps_per_step", spec.micro_steps_per_step, 1, MOST_INT16),
        ("epochs", spec.epochs, 1, MOST_INT16),
        ("seed", spec.seed, 0, 2**63 - 1),
    ):
        if not least <= number <= most:
            raise ConfigError(f"{key} is {number}; it must lie between {least} and {most}")
    _validate_groups(spec)
    _validate_curriculum(spec.curriculum, len(spec.groups))


def validate_samples(spec: PlanSpec, samples: Samples) -> None:
    """Check the samples against valid settings.

    Raises:
        PlanError: there are none, one is empty or longer than the longest packing length, or the columns disagree.
    """
    if not len(samples):
        raise PlanError("there are no samples to plan; see rejected.arrow for the reasons of rejected rows")
    if not len(samples.num_tokens) == len(samples.num_loss_tokens) == len(samples.source):
        raise PlanError("num_tokens, num_loss_tokens and source of the samples have different lengths")
    longest = spec.groups[-1].pack_length
    for wrong, words in (
        (samples.num_tokens > longest, f"the longest packing length is {longest}; reject or truncate it before"),
        (samples.num_tokens < 1, "a sample has at least one token; reject it before"),
    ):
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            others = f" (and {int(wrong.sum()) - 1} other samples)" if wrong.sum() > 1 else ""
            raise PlanError(f"sample {first}{others} has {samples.num_tokens[first]} tokens; {words}")
    if samples.source.min() < 0 or samples.source.max() >= len(samples.source_names):
        raise PlanError(f"a sample names source {samples.source.max()}; there are {len(samples.source_names)} sources")


def _validate_groups(spec: PlanSpec) -> None:
    if not 1 <= len(spec.groups) <= MOST_INT16:
        raise ConfigError("packing.groups: at least one packing group is needed")
    for group in spec.groups:
        _validate_group(group, spec.world_size)
    for shorter, longer in zip(spec.groups, spec.groups[1:], strict=False):
        if shorter.pack_length >= longer.pack_length:
            raise ConfigError(
                f"packing.groups: {longer.name} ({longer.pack_length} tokens) comes after {shorter.name} "
                f"({shorter.pack_length} tokens); lengths must be distinct and ascending"
            )
    names = [group.name for group in spec.groups]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"packing.groups: two packing groups are called {name!r}; names must differ")


def _validate_group(group: PackingGroup, world_size: int) -> None:
    where = f"packing group {group.name}"
    if group.sp_degree < 1 or group.gc_layers < 0:
        raise ConfigError(f"{where}: sp_degree {group.sp_degree} or gc_layers {group.gc_layers} is too small")
    if not 1 <= group.pack_length <= MOST_INT32:
        raise ConfigError(f"{where}: length {group.pack_length} must lie between 1 and {MOST_INT32}")
    if world_size % group.sp_degree:
        raise ConfigError(
            f"{where}: sp_degree {group.sp_degree} does not divide the world size {world_size}; "
            f"choose an sp_degree that does, or another number of GPUs"
        )
    if group.pack_length % group.sp_degree:
        raise ConfigError(
            f"{where}: length {group.pack_length} is not a multiple of sp_degree {group.sp_degree}; "
            f"{group.pack_length // group.sp_degree * group.sp_degree} would be"
        )


def _validate_curriculum(curriculum: Curriculum, num_groups: int) -> None:
    kind, steps, fraction = curriculum.kind, curriculum.first_phase_steps, curriculum.first_phase_fraction
    if kind == "none":
        if steps is not None or fraction is not None:
            raise ConfigError(f"curriculum: a first phase needs kind: {' or '.join(list(PHASES)[1:])}")
        return
    if num_groups < 2:
        raise ConfigError(f"curriculum: kind {kind} needs at least two packing groups")
    if (steps is None) == (fraction is None):
        raise ConfigError(f"curriculum: kind {kind} needs either first_phase_steps or first_phase_fraction")
    if steps is not None and steps < 0:
        raise ConfigError(f"curriculum.first_phase_steps is {steps}; it must not be negative")
    if fraction is not None and not 0 <= fraction <= 1:
        raise ConfigError(f"curriculum.first_phase_fraction is {fraction}; it must lie between 0 and 1")
