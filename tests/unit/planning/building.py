"""Small plans and the one checker that every kind of plan must pass."""

import itertools
from typing import Any

import numpy as np

from hbp_prep.cost.model import CostModel
from hbp_prep.cost.presets import HARDWARE, MODELS
from hbp_prep.planning.types import Curriculum, PackingGroup, Plan, PlanSpec, Samples

COST = CostModel.build(MODELS["llama3.1-8b"], HARDWARE["h100-80g"], gpus_per_node=8)


def groups(*rows: tuple[int, int]) -> tuple[PackingGroup, ...]:
    """Packing groups from (pack_length, sp_degree)."""
    return tuple(PackingGroup(name=f"L{length}", pack_length=length, sp_degree=sp) for length, sp in rows)


def spec(rows: list[tuple[int, int]], world_size: int, **changes: Any) -> PlanSpec:
    settings: dict[str, Any] = {
        "strategy": "bfs",
        "order": "stratified",
        "micro_steps_per_step": 2,
        "curriculum": Curriculum(),
        "epochs": 1,
        "seed": 0,
    }
    return PlanSpec(groups=groups(*rows), world_size=world_size, **{**settings, **changes})


def samples(lengths: list[int] | np.ndarray, num_sources: int = 3) -> Samples:
    num_tokens = np.array(lengths, dtype=np.int32)
    return Samples(
        num_tokens=num_tokens,
        num_loss_tokens=(num_tokens // 2).astype(np.int32),
        source=(np.arange(len(num_tokens)) % num_sources).astype(np.int16),
        source_names=tuple(f"source-{index}" for index in range(num_sources)),
    )


def skewed(num_short: int, num_long: int, seed: int = 0) -> np.ndarray:
    """Lengths of a small mixed corpus: short chats up to 4K, long ones up to 128K."""
    rng = np.random.default_rng(seed)
    short = rng.lognormal(5.5, 1.0, num_short).clip(8, 4096)
    long = rng.lognormal(10.0, 0.8, num_long).clip(1500, 131_072)
    return np.concatenate([short, long]).astype(np.int32)


def check_plan(plan: Plan, given: Samples) -> None:
    """Everything that must hold of any plan, in plain Python."""
    packs, schedule, settings = plan.packs, plan.schedule, plan.spec
    lengths = given.num_tokens.tolist()
    assert sorted(packs.sample_ids.tolist()) == list(range(len(lengths))), "every sample exactly once"
    offsets = packs.offsets.tolist()
    assert offsets[0] == 0 and offsets[-1] == len(lengths)
    for pack in range(len(packs)):
        own = packs.sample_ids[offsets[pack] : offsets[pack + 1]].tolist()
        assert own, "no empty pack"
        tokens = [lengths[sample] for sample in own]
        assert sum(tokens) == packs.num_tokens[pack] <= settings.groups[packs.group[pack]].pack_length
        assert sum(length * length for length in tokens) == packs.attention_cost[pack]
        assert sum(int(given.num_loss_tokens[sample]) for sample in own) == packs.num_loss_tokens[pack]
    assert packs.group.tolist() == sorted(packs.group.tolist())

    used: dict[int, list[int]] = {epoch: [] for epoch in range(settings.epochs)}
    for index in range(len(schedule)):
        first, last = schedule.assignment_offsets[index], schedule.assignment_offsets[index + 1]
        members = schedule.assignment_packs[first:last].tolist()
        group = int(schedule.group[index])
        assert len(members) == settings.dp_size(group), "one pack per DP rank"
        assert {int(packs.group[pack]) for pack in members} == {group}, "all of one packing group"
        used[int(schedule.epoch[index])] += members
        assert plan.micro_steps.num_tokens[index] == sum(int(packs.num_tokens[pack]) for pack in members)
    for members in used.values():
        assert sorted(members) == list(range(len(packs))), "every pack once per epoch"

    steps = schedule.step.tolist()
    assert steps[0] == 0 and all(b - a in (0, 1) for a, b in itertools.pairwise(steps)), "no gaps"
    for step in range(steps[-1] + 1):
        inside = [index for index, value in enumerate(steps) if value == step]
        assert len(inside) <= settings.micro_steps_per_step
        assert schedule.micro_step[inside].tolist() == list(range(len(inside)))
        assert len(set(schedule.epoch[inside].tolist())) == len(set(schedule.phase[inside].tolist())) == 1
    assert schedule.epoch.tolist() == sorted(schedule.epoch.tolist())

    first_use = {pack: position for position, pack in reversed(list(enumerate(schedule.assignment_packs.tolist())))}
    for left in range(len(packs) - 1):
        if packs.group[left] == packs.group[left + 1]:
            assert first_use[left] < first_use[left + 1], "packs are numbered in the order of first use"
