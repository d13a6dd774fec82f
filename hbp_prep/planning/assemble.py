"""From packs to a measured plan: their sums, micro-steps, order, figures. O(P log P).

The planner's own packs fill every micro-step. Packs that come from elsewhere (shards on disk, a published method) need
not: then a packing group has fewer than one micro-step's worth of *empty packs*, all in one micro-step, which costs
what its fullest rank costs.
"""

from dataclasses import replace

import numpy as np

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.balancing import form_micro_steps
from hbp_prep.planning.curriculum import make_schedule
from hbp_prep.planning.metrics import micro_step_metrics, pack_seconds, plan_metrics
from hbp_prep.planning.types import Curriculum, Int16, Int64, Packs, Plan, PlanSpec, Samples, Schedule


def packs_from(samples: Samples, pack_of_sample: Int64, group_of_pack: Int16) -> Packs:
    """Packs with their sums.

    Args:
        samples: N samples.
        pack_of_sample: int64[N], each 0 .. P - 1; every pack has a sample.
        group_of_pack: int16[P], ascending.
    """
    lengths = samples.num_tokens.astype(np.int64)
    num_packs = len(group_of_pack)
    num_samples = np.bincount(pack_of_sample, minlength=num_packs)
    return Packs(
        group=group_of_pack,
        offsets=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(num_samples)]),
        sample_ids=np.argsort(pack_of_sample, kind="stable"),
        num_tokens=sum_by_pack(pack_of_sample, lengths, num_packs).astype(np.int32),
        num_loss_tokens=sum_by_pack(pack_of_sample, samples.num_loss_tokens.astype(np.int64), num_packs).astype(
            np.int32
        ),
        attention_cost=sum_by_pack(pack_of_sample, lengths * lengths, num_packs),
    )


def sum_by_pack(pack_of_sample: Int64, values: Int64, num_packs: int) -> Int64:
    """Exact sums, int64[P] (bincount's floats would lose bits of attention costs)."""
    totals = np.zeros(num_packs, dtype=np.int64)
    np.add.at(totals, pack_of_sample, values)
    return totals


def schedule_packs(spec: PlanSpec, samples: Samples, packs: Packs, cost: CostModel) -> Plan:
    """The plan of packs that stand: balanced micro-steps (by ``spec.order``), steps and curriculum.

    Raises:
        PlanError: the curriculum asks for more than these packs have.
    """
    schedule = make_schedule(spec, form_micro_steps(spec, packs.group, packs.attention_cost))
    return measured(spec, samples, packs, schedule, cost)


def shuffle_sorted(spec: PlanSpec, samples: Samples, packs: Packs, keys: Int64, cost: CostModel) -> Plan:
    """The plan of published methods that sort: packs sorted by ``keys`` into micro-steps, these in random order."""
    by_key = replace(spec, order="sorted", curriculum=Curriculum())
    shuffled = replace(by_key, order="random")
    schedule = make_schedule(shuffled, form_micro_steps(by_key, packs.group, keys))
    return measured(shuffled, samples, packs, schedule, cost)


def measured(spec: PlanSpec, samples: Samples, packs: Packs, schedule: Schedule, cost: CostModel) -> Plan:
    """Packs and schedule with their figures."""
    seconds = pack_seconds(spec, packs, cost)
    micro_steps = micro_step_metrics(packs, schedule, seconds)
    metrics = plan_metrics(spec, samples, packs, schedule, micro_steps, seconds)
    return Plan(spec=spec, packs=packs, schedule=schedule, micro_steps=micro_steps, metrics=metrics)
