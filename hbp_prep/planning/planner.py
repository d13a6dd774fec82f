"""From samples to a finished plan: assign, pack, fill, balance, order, measure.

The planner sees lengths only. Equal inputs give equal plans, on any machine and with any number of workers: it runs in
one process and draws from generators of the seed alone. Cost: about 1 s and 200 bytes per sample for 1M samples.
"""

from dataclasses import replace

import numpy as np

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.assemble import measured, packs_from, schedule_packs, sum_by_pack
from hbp_prep.planning.balancing import form_micro_steps
from hbp_prep.planning.curriculum import make_schedule
from hbp_prep.planning.filling import Filled
from hbp_prep.planning.packing import pack_samples
from hbp_prep.planning.randomness import generator
from hbp_prep.planning.strategies import STRATEGIES
from hbp_prep.planning.types import EMPTY_PACK, Curriculum, Packs, Plan, PlanSpec, Samples, Schedule
from hbp_prep.planning.validate import validate_samples, validate_spec
from hbp_prep.progress import NoProgress, Progress, track

STAGES = ("pack", "order", "measure")
NAIVE_STRATEGY = "isf"


def make_plan(spec: PlanSpec, samples: Samples, cost: CostModel, progress: Progress | None = None) -> Plan:
    """Plan all epochs.

    Args:
        spec: Packing groups, world size, strategy, order, curriculum, epochs, seed.
        samples: N samples, none longer than the longest packing length.
        cost: Predicts seconds.
        progress: Told of the stages.

    Raises:
        ConfigError: a setting is wrong.
        PlanError: no valid plan exists for these samples.
    """
    validate_spec(spec)
    validate_samples(spec, samples)
    progress = progress or NoProgress()
    with track(progress, "plan", len(STAGES), "stages"):
        filled = pack_samples(spec, samples.num_tokens, cost)
        progress.advance(1)
        schedule = _order(spec, samples, filled)
        packs, schedule = _number_by_use(samples, filled, schedule)
        progress.advance(1)
        plan = measured(spec, samples, packs, schedule, cost)
        progress.advance(1)
    return plan


def naive_baseline(spec: PlanSpec, samples: Samples, cost: CostModel) -> Plan:
    """What one would do without balance: ISF at the longest packing length only, micro-steps and steps at random.

    Raises:
        ConfigError: a setting is wrong.
        PlanError: the samples are too few for the longest packing group's data-parallel ranks.
    """
    return make_plan(_naive(spec), samples, cost)


def naive_baseline_with_empty_packs(spec: PlanSpec, samples: Samples, cost: CostModel) -> Plan:
    """The same for samples that are too few, as those of a folder replanned for a larger cluster may be."""
    naive = _naive(spec)
    capacity = naive.groups[0].pack_length
    bins = STRATEGIES[NAIVE_STRATEGY](samples.num_tokens.astype(np.int64), capacity, generator(spec.seed, "pack"))
    packs = packs_from(samples, bins, np.zeros(int(bins.max()) + 1, dtype=np.int16))
    return schedule_packs(naive, samples, packs, cost)


def _naive(spec: PlanSpec) -> PlanSpec:
    return replace(
        spec, groups=spec.groups[-1:], strategy=NAIVE_STRATEGY, order="random", curriculum=Curriculum(kind="none")
    )


def _order(spec: PlanSpec, samples: Samples, filled: Filled) -> Schedule:
    lengths = samples.num_tokens.astype(np.int64)
    cost = sum_by_pack(filled.pack_of_sample, lengths * lengths, len(filled.group_of_pack))
    return make_schedule(spec, form_micro_steps(spec, filled.group_of_pack, cost))


def _number_by_use(samples: Samples, filled: Filled, schedule: Schedule) -> tuple[Packs, Schedule]:
    """Number packs by packing group, and within it by first use, so that shards are written in training order."""
    num_packs = len(filled.group_of_pack)
    assert not (schedule.assignment_packs == EMPTY_PACK).any(), "the planner fills every micro-step"
    first_epoch = schedule.assignment_packs[:num_packs]  # an epoch uses every pack once
    old_of_new = first_epoch[np.argsort(filled.group_of_pack[first_epoch], kind="stable")]
    new_of_old = np.empty(num_packs, dtype=np.int64)
    new_of_old[old_of_new] = np.arange(num_packs)
    packs = packs_from(samples, new_of_old[filled.pack_of_sample], filled.group_of_pack[old_of_new])
    return packs, replace(schedule, assignment_packs=new_of_old[schedule.assignment_packs])
