"""Bin packing by CP-SAT: do these samples fit into this many packs? Asked where best fit needs one micro-step more."""

from ortools.sat.python import cp_model

from hbp_prep.planning.solvers.deterministic import deterministic_solver
from hbp_prep.planning.types import Int64

MAX_SAMPLES = 400
MAX_VARIABLES = 20_000
EFFORT = 0.2
"""Deterministic time: about a second."""


def pack_exactly(lengths: Int64, num_packs: int, capacity: int, seed: int) -> list[int] | None:
    """Put samples into at most ``num_packs`` packs.

    Args:
        lengths: int64[n].
        num_packs: Packs there are.
        capacity: Tokens that a pack may hold.
        seed: Of the solver.

    Returns:
        The pack of each sample, or ``None``: there is no such packing, or none was found within the effort.
    """
    num_samples = len(lengths)
    if num_samples > MAX_SAMPLES or num_samples * num_packs > MAX_VARIABLES:
        return None
    model = cp_model.CpModel()
    inside = [[model.new_bool_var("") for _ in range(num_packs)] for _ in range(num_samples)]
    for row in inside:
        model.add_exactly_one(row)
    for pack in range(num_packs):
        model.add(sum(int(length) * row[pack] for length, row in zip(lengths, inside, strict=True)) <= capacity)
    longest_first = sorted(range(num_samples), key=lambda sample: -int(lengths[sample]))
    for rank, sample in enumerate(longest_first[:num_packs]):  # packs are alike: the i-th longest opens at most pack i
        for pack in range(rank + 1, num_packs):
            model.add(inside[sample][pack] == 0)
    solver = deterministic_solver(seed, EFFORT)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [next(pack for pack, var in enumerate(row) if solver.boolean_value(var)) for row in inside]
