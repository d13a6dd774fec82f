"""``python -m benchmarks.planner [--json] [--seed N] [--samples N] [--long N]``: every strategy on one million samples.

Prints, per strategy, balance, padding, communication, batch bias and the planner's seconds; and the naive baseline. The
kernels are compiled before; that start-up, measured in a process with an empty cache, is printed by itself.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from typing import Any

import numba
import numpy as np

from benchmarks.planner.lengths import NUM_LONG, NUM_SHORT, synthetic_samples
from hbp_prep.cost.model import CostModel
from hbp_prep.cost.presets import HARDWARE, MODELS
from hbp_prep.planning.planner import make_plan, naive_baseline
from hbp_prep.planning.strategies import STRATEGIES
from hbp_prep.planning.types import Curriculum, PackingGroup, Plan, PlanSpec

WORLD_SIZE = 32
GROUPS = (
    PackingGroup(name="16K", pack_length=16_384, sp_degree=1, gc_layers=28),
    PackingGroup(name="128K", pack_length=131_072, sp_degree=8, gc_layers=28),
)
COST = CostModel.build(MODELS["llama3.1-8b"], HARDWARE["h100-80g"], gpus_per_node=8)
COLUMNS = ("abr", "wabr", "dbr", "pr", "cr", "tbr", "predicted_hours")


def spec(strategy: str, seed: int) -> PlanSpec:
    """The published setting: LLaMA3.1-8B on 32 GPUs."""
    return PlanSpec(
        groups=GROUPS,
        world_size=WORLD_SIZE,
        strategy=strategy,
        order="stratified",
        micro_steps_per_step=4,
        curriculum=Curriculum(),
        epochs=1,
        seed=seed,
    )


def start_up_seconds() -> float:
    """Seconds that a fresh process without a cache takes to import, compile every kernel and plan a small corpus."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        subprocess.run([sys.executable, "-m", "benchmarks.planner", "--warm-up"], env=environment, check=True)
    return time.perf_counter() - started


def warm_up() -> None:
    """Compile every kernel, by planning a small corpus with every strategy."""
    samples = synthetic_samples(0, 4000, 40)
    for strategy in STRATEGIES:
        make_plan(spec(strategy, 0), samples, COST)


def measure(seed: int, num_short: int, num_long: int) -> dict[str, Any]:
    """All rows of the table."""
    start_up = start_up_seconds()
    warm_up()
    samples = synthetic_samples(seed, num_short, num_long)
    rows = []
    for strategy in (*STRATEGIES, "naive"):
        started = time.perf_counter()
        if strategy == "naive":
            plan = naive_baseline(spec("isf", seed), samples, COST)
        else:
            plan = make_plan(spec(strategy, seed), samples, COST)
        rows.append(_row(strategy, plan, time.perf_counter() - started))
    return {
        "seed": seed,
        "num_samples": len(samples),
        "num_tokens": int(samples.num_tokens.sum(dtype=np.int64)),
        "world_size": WORLD_SIZE,
        "packing_groups": [f"{group.name} SP {group.sp_degree}" for group in GROUPS],
        "start_up_seconds": start_up,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "rows": rows,
    }


def _row(strategy: str, plan: Plan, seconds: float) -> dict[str, Any]:
    bias = plan.metrics["batch_bias"]
    assert isinstance(bias, dict)
    figures = {name: plan.metrics[name] for name in COLUMNS}
    return {"strategy": strategy, "seconds": seconds, **figures, "cr_floor": plan.metrics["cr_floor"], **bias}


def show(result: dict[str, Any]) -> None:
    """The table."""
    print(
        f"{result['num_samples']:,} samples, {result['num_tokens']:,} tokens (Tulu3-like + LongCite-like), seed "
        f"{result['seed']}; {result['world_size']} GPUs, {', '.join(result['packing_groups'])}"
    )
    print(
        f"start-up (imports, compiling all kernels, no cache): {result['start_up_seconds']:.1f} s; one core, "
        f"{result['machine']}, Python {result['python']}, numba {result['numba']}"
    )
    heads = ("strategy", "ABR", "wABR", "DBR", "PR", "CR", "TBR", "hours", "bias", "random", "samples cv", "seconds")
    print("".join(f"{head:>11}" for head in heads))
    for row in result["rows"]:
        figures = [*(row[name] for name in COLUMNS), row["mean"], row["random_mean"], row["samples_per_step_cv"]]
        cells = "".join(f"{figure:>11.4f}" for figure in figures)
        print(f"{row['strategy']:>11}{cells}{row['seconds']:>11.2f}")


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=NUM_SHORT, help="short samples")
    parser.add_argument("--long", type=int, default=NUM_LONG, help="long samples")
    parser.add_argument("--warm-up", action="store_true", help="compile the kernels, nothing else")
    options = parser.parse_args()
    if options.warm_up:
        warm_up()
        return
    result = measure(options.seed, options.samples, options.long)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


if __name__ == "__main__":
    main()
