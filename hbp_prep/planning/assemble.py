"""From packs that stand already to a measured plan: micro-steps, order, figures. O(P log P).

The planner makes packs that fill every micro-step; here packs come from elsewhere (shards on disk, a published method),
so their number need not be a multiple of the DP size. The last places of a packing group are then *empty packs*,
``EMPTY_PACK``: fewer than one micro-step's worth, all in one micro-step, which costs what its fullest rank costs.
"""

import numpy as np

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.balancing import MicroSteps
from hbp_prep.planning.curriculum import make_schedule
from hbp_prep.planning.metrics import micro_step_metrics, pack_seconds, plan_metrics
from hbp_prep.planning.randomness import generator
from hbp_prep.planning.types import EMPTY_PACK, Int16, Int64, Packs, Plan, PlanSpec, Samples, Schedule


def packs_from(samples: Samples, pack_of_sample: Int64, group_of_pack: Int16) -> Packs:
    """Packs with their sums.

    Args:
        samples: N samples.
        pack_of_sample: int64[N], each 0 .. P - 1; every pack has a sample.
        group_of_pack: int16[P], ascending.
    """
    lengths = samples.num_tokens.astype(np.int64)
    num_packs = len(group_of_pack)

    def summed(values: Int64) -> Int64:
        totals = np.zeros(num_packs, dtype=np.int64)
        np.add.at(totals, pack_of_sample, values)
        return totals

    num_samples = np.bincount(pack_of_sample, minlength=num_packs)
    return Packs(
        group=group_of_pack,
        offsets=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(num_samples)]),
        sample_ids=np.argsort(pack_of_sample, kind="stable"),
        num_tokens=summed(lengths).astype(np.int32),
        num_loss_tokens=summed(samples.num_loss_tokens.astype(np.int64)).astype(np.int32),
        attention_cost=summed(lengths * lengths),
    )


def padded_micro_steps(spec: PlanSpec, group_of_pack: Int16, keys: Int64) -> MicroSteps:
    """Packs of each packing group in ascending order of ``keys``, cut into micro-steps.

    Where they do not fill the last micro-step, the group's *first* micro-step (its cheapest, by attention cost) holds
    the empty packs: there the least is waited for.

    Args:
        keys: int64[P]; equal keys are taken in the order of packs. ``order: random`` shuffles instead.
    """
    sizes, packs, groups = [np.zeros(1, dtype=np.int64)], [], []
    for group in range(len(spec.groups)):
        dp_size = spec.dp_size(group)
        rng = generator(spec.seed, "micro-steps", group)
        members = np.flatnonzero(group_of_pack == group)
        members = (
            rng.permutation(members) if spec.order == "random" else members[np.argsort(keys[members], kind="stable")]
        )
        num_empty = -len(members) % dp_size
        filled = np.concatenate([np.full(num_empty, EMPTY_PACK, dtype=np.int64), members])
        packs.append(rng.permuted(filled.reshape(-1, dp_size), axis=1).ravel())
        sizes.append(np.full(len(filled) // dp_size, dp_size, dtype=np.int64))
        groups.append(np.full(len(filled) // dp_size, group, dtype=np.int16))
    return MicroSteps(
        group=np.concatenate(groups), offsets=np.cumsum(np.concatenate(sizes)), packs=np.concatenate(packs)
    )


def schedule_packs(spec: PlanSpec, samples: Samples, packs: Packs, cost: CostModel) -> Plan:
    """The plan of packs that stand: balanced micro-steps (by ``spec.order``), steps and curriculum.

    Raises:
        PlanError: the curriculum asks for more than these packs have.
    """
    schedule = make_schedule(spec, padded_micro_steps(spec, packs.group, packs.attention_cost))
    return measured(spec, samples, packs, schedule, cost)


def measured(spec: PlanSpec, samples: Samples, packs: Packs, schedule: Schedule, cost: CostModel) -> Plan:
    """Packs and schedule with their figures."""
    seconds = pack_seconds(spec, packs, cost)
    micro_steps = micro_step_metrics(packs, schedule, seconds)
    metrics = plan_metrics(spec, samples, packs, schedule, micro_steps, seconds)
    return Plan(spec=spec, packs=packs, schedule=schedule, micro_steps=micro_steps, metrics=metrics)
