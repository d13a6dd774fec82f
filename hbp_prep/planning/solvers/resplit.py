"""CP-SAT: split the long samples of a few micro-steps over their packs, so that each pack costs about the same.

The samples that matter to attention cost ("solid") are items; all shorter ones are a fluid that later fills every pack
up to one level, and count here by their mean cost per token only.
"""

from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from hbp_prep.planning.solvers.deterministic import deterministic_solver
from hbp_prep.planning.types import Int64

COST_STEPS = 1_000_000
"""Attention costs are rounded to this many steps of the largest pack's cost: enough to rank, small enough to solve."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """The solid samples of some micro-steps of one packing group.

    Attributes:
        lengths: int64[n], of the solid samples.
        pack: int64[n], where each is now: pack ``u * dp_size + d`` is DP rank d of micro-step u.
        num_micro_steps: Micro-steps that share the samples.
        dp_size: Packs of one micro-step.
        level: Tokens that every pack holds once the fluid is in.
        limit: Tokens of solid samples that a pack may hold.
        fluid_cost_per_token: Mean attention cost of the fluid, per token.
    """

    lengths: Int64
    pack: Int64
    num_micro_steps: int
    dp_size: int
    level: int
    limit: int
    fluid_cost_per_token: float


def resplit(split: Split, seed: int, effort: float) -> Int64 | None:
    """Minimise the sum over micro-steps of the largest attention cost among their packs.

    Args:
        split: The samples and where they are.
        seed: Of the solver.
        effort: Deterministic time; equal inputs give equal answers.

    Returns:
        int64[n], the new pack of each solid sample; ``None`` where the solver found nothing.
    """
    num_packs = split.num_micro_steps * split.dp_size
    costs = split.lengths.astype(np.float64) ** 2
    unit = max(1.0, float(np.bincount(split.pack, weights=costs).max()) / COST_STEPS)
    # A token of a solid sample takes the place of a token of fluid.
    net = np.rint((costs - split.fluid_cost_per_token * split.lengths) / unit).astype(np.int64).tolist()
    model = cp_model.CpModel()
    inside = [[model.new_bool_var("") for _ in range(num_packs)] for _ in net]
    for row, now in zip(inside, split.pack.tolist(), strict=True):
        model.add_exactly_one(row)
        for pack, variable in enumerate(row):
            model.add_hint(variable, pack == now)
    largest = [model.new_int_var(0, 2 * COST_STEPS, "") for _ in range(split.num_micro_steps)]
    for pack, column in enumerate(zip(*inside, strict=True)):
        model.add(cp_model.LinearExpr.weighted_sum(column, split.lengths.tolist()) <= split.limit)
        model.add(cp_model.LinearExpr.weighted_sum(column, net) <= largest[pack // split.dp_size])
    model.minimize(sum(largest))
    solver = deterministic_solver(seed, effort)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    values = np.array([[solver.boolean_value(variable) for variable in row] for row in inside])
    return values.argmax(axis=1).astype(np.int64)
