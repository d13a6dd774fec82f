"""Published ways to plan a whole corpus, by name, to compare with: ``plan(spec, samples, cost) -> metrics``.

A packing *strategy* (``planning.strategies``) fills packs of one length; the planner uses it inside each packing group.
A *method* decides everything: packing lengths, packs, micro-steps, order. Methods keep every sample, as their papers'
code not always does; where packs are no multiple of the DP size, the last micro-step has empty packs.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from hbp_prep.cost.model import CostModel
from hbp_prep.planning.methods.flexsp import flexsp
from hbp_prep.planning.methods.hbp import hbp
from hbp_prep.planning.methods.longalign import longalign
from hbp_prep.planning.methods.one_length import no_packing, one_length
from hbp_prep.planning.methods.sorted_batching import sorted_batching
from hbp_prep.planning.types import PlanSpec, Samples

Method = Callable[[PlanSpec, Samples, CostModel], Mapping[str, Any]]
"""Settings, samples and cost model to a plan's metrics. ``spec.strategy``, ``order`` and ``curriculum`` are ignored."""

METHODS: Final[dict[str, Method]] = {
    "none": no_packing,
    **{name: partial(one_length, name) for name in ("random", "isf", "ffs", "ffd", "bfs", "bfd", "spfhp")},
    "sorted": sorted_batching,
    "longalign": longalign,
    "flexsp": flexsp,
    "hbp": hbp,
}
