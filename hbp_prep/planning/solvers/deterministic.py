"""CP-SAT set up so that equal inputs give equal answers: one worker, a fixed seed, limits in its own units of work."""

from ortools.sat.python import cp_model


def deterministic_solver(seed: int, effort: float) -> cp_model.CpSolver:
    """A solver that stops after ``effort`` units of deterministic time (about a second each), never by the clock."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.max_deterministic_time = effort
    return solver
