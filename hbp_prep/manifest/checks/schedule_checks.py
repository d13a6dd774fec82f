"""The schedule against the packs: who runs what, once per epoch, and where it lies."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbp_prep.manifest.checks.findings import Findings
from hbp_prep.manifest.checks.placement import PackTable
from hbp_prep.manifest.schedule import Schedule
from hbp_prep.manifest.schema import Manifest

Array = NDArray[Any]


def check_schedule(manifest: Manifest, schedule: Schedule, packs: PackTable, findings: Findings) -> bool:
    """Every invariant of both schedule files (``load_schedule`` has proven the numbering of steps and DP ranks).

    Returns:
        Whether every pack id is known, so that metrics can be computed.
    """
    entry = manifest.schedule
    _check_shape(manifest, schedule, findings)
    if not len(packs) or not len(schedule):
        findings.add("schedule", "there are no packs or no micro-steps")
        return False
    micro_step_of = np.repeat(np.arange(len(schedule)), np.diff(schedule.assignment_offsets))
    pack_id = schedule.pack_id
    lowest = -1 if entry.replanned else 0
    unknown = (pack_id < lowest) | (pack_id >= len(packs))
    if unknown.any():
        index = int(np.argmax(unknown))
        findings.add("schedule", f"{_place(schedule, micro_step_of, index)}: there is no pack {pack_id[index]}")
        return False
    real = pack_id >= 0
    for name, expected in (
        ("packing group", packs.group[pack_id] == schedule.group[micro_step_of]),
        ("shard", packs.shard[pack_id] == schedule.shard),
        ("row", packs.row[pack_id] == schedule.row),
    ):
        wrong = np.flatnonzero(real & ~expected)
        if len(wrong):
            index = int(wrong[0])
            findings.add(
                "schedule",
                f"{_place(schedule, micro_step_of, index)}: the {name} is not that of pack {pack_id[index]}",
            )
    _check_once_per_epoch(manifest, schedule, micro_step_of, packs, findings)
    for name in ("num_tokens", "num_loss_tokens"):
        sums = np.bincount(micro_step_of[real], getattr(packs, name)[pack_id[real]], len(schedule)).astype(np.int64)
        _check_column(schedule, name, sums, findings)
    _check_loss_of_steps(schedule, findings)
    return True


def _check_shape(manifest: Manifest, schedule: Schedule, findings: Findings) -> None:
    entry = manifest.schedule
    if len(schedule) != entry.num_micro_steps:
        findings.add("schedule", f"it has {len(schedule)} micro-steps, the manifest says {entry.num_micro_steps}")
    sizes = np.diff(schedule.step_offsets)
    if len(sizes) and sizes.max() > entry.micro_steps_per_step:
        step = int(np.argmax(sizes))
        findings.add(
            "schedule", f"step {step} has {sizes[step]} micro-steps, the manifest allows {entry.micro_steps_per_step}"
        )
    present = np.unique(schedule.epoch)
    if not np.array_equal(present, np.arange(len(present))) or len(present) != entry.epochs:
        findings.add("schedule", f"its epochs are {present[:9].tolist()}, the manifest says 0 to {entry.epochs - 1}")
    if (np.diff(schedule.epoch) < 0).any():
        index = int(np.argmax(np.diff(schedule.epoch) < 0)) + 1
        findings.add("schedule", f"{_name(schedule, index)} goes back to epoch {schedule.epoch[index]}")


def _check_once_per_epoch(
    manifest: Manifest, schedule: Schedule, micro_step_of: Array, packs: PackTable, findings: Findings
) -> None:
    """Every pack once; empty packs only after a replan, fewer than one micro-step's worth per packing group."""
    for epoch in range(min(manifest.schedule.epochs, int(schedule.epoch.max(initial=-1)) + 1)):
        here = schedule.epoch[micro_step_of] == epoch
        pack_ids = schedule.pack_id[here]
        times = np.bincount(pack_ids[pack_ids >= 0], minlength=len(packs))
        wrong = np.flatnonzero(times != 1)
        if len(wrong):
            pack = int(wrong[0])
            more = f" ({len(wrong) - 1} more packs likewise)" if len(wrong) > 1 else ""
            findings.add("schedule", f"pack {pack} comes {times[pack]} times in epoch {epoch}, not once{more}")
        num_empty = np.bincount(schedule.group[micro_step_of[here]][pack_ids < 0], minlength=len(manifest.groups))
        for group, count in zip(manifest.groups, num_empty.tolist(), strict=True):
            if count >= group.dp_size:
                findings.add(
                    "schedule",
                    f"epoch {epoch} has {count} empty packs of packing group {group.name}, "
                    f"a whole micro-step's worth (DP size {group.dp_size})",
                )


def _check_loss_of_steps(schedule: Schedule, findings: Findings) -> None:
    """The loss is divided by a step's loss tokens, so there must be some."""
    per_step = np.add.reduceat(schedule.num_loss_tokens, schedule.step_offsets[:-1])
    if (per_step < 1).any():
        findings.add("schedule", f"step {int(np.argmin(per_step))} has no loss tokens")


def _check_column(schedule: Schedule, name: str, expected: Array, findings: Findings) -> None:
    found = getattr(schedule, name)
    wrong = np.flatnonzero(found != expected)
    if len(wrong):
        index = int(wrong[0])
        findings.add(
            "schedule", f"{_name(schedule, index)}: {name} is {found[index]}, its packs have {expected[index]}"
        )


def _place(schedule: Schedule, micro_step_of: Array, index: int) -> str:
    micro_step = int(micro_step_of[index])
    return f"{_name(schedule, micro_step)}, dp_rank {index - int(schedule.assignment_offsets[micro_step])}"


def _name(schedule: Schedule, index: int) -> str:
    return f"step {schedule.step[index]}, micro_step {schedule.micro_step[index]}"
