"""The whole pipeline on the real mix: seconds per stage, peak memory of the process tree, packing quality.

    HBP_SHARED=/path/to/shared python -m benchmarks.end_to_end [--times 10] [--workers 2] [--json]

Runs ``pipelines/tulu3_longcite.yaml`` on ``data/corpora/tulu3_shaped`` and ``data/corpora/long`` with the Llama 3.1
tokenizer, in a child process, from files to report; then verifies the folder. ``--times N`` repeats every source N
times under N names, so N times as much is read, tokenised and written. Peak memory is the largest sum, over the child
and its workers, of the proportional set size (shared pages counted once; file pages that the kernel may drop at any
time are counted too) sampled every 0.2 s, and the same of anonymous pages alone.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import yaml

from hbp_prep import __version__

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "pipelines" / "tulu3_longcite.yaml"
SAMPLE_SECONDS = 0.2


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    options = parser.parse_args()
    data = Path(os.environ.get("HBP_SHARED", ROOT.parent / "shared")) / "data"
    if not data.is_dir():
        sys.exit(f"no real corpora at {data}; set HBP_SHARED")
    with tempfile.TemporaryDirectory() as folder:
        result = measure(data, Path(folder), options.times, options.workers, options.overrides)
    show(result)
    if options.json:
        print(json.dumps(result))


def measure(data: Path, folder: Path, times: int, workers: int, overrides: list[str]) -> dict[str, Any]:
    """One run and one verification."""
    recipe = yaml.safe_load(RECIPE.read_text())
    sources = [
        {"name": f"tulu3-{number}", "paths": str(data / "corpora/tulu3_shaped/*.parquet")} for number in range(times)
    ] + [{"name": f"long-{number}", "paths": str(data / "corpora/long/*/*.jsonl")} for number in range(times)]
    recipe |= {"sources": sources, "tokenizer": {"path": str(data / "tokenizers/llama3_1"), "chat_template": "tulu3"}}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    sets = [part for override in overrides for part in ("--set", override)]
    command = [sys.executable, "-m", "hbp_prep.cli", "run", str(path), "--output", str(folder / "out")]
    run = timed([*command, "--quiet", "--json", "--workers", str(workers), *sets])
    verify = timed(
        [sys.executable, "-m", "hbp_prep.cli", "verify", str(folder / "out"), "--quiet", "--workers", str(workers)]
    )
    summary = json.loads(run.pop("output"))
    verify.pop("output")
    num_bytes = sum(item.stat().st_size for item in (folder / "out" / "shards").rglob("*.arrow"))
    return {
        "versions": {"hbp-prep": __version__, "python": platform.python_version(), "machine": platform.machine()},
        "workers": workers,
        "times": times,
        "run": run,
        "verify": verify,
        "stage_seconds": {stage["name"]: stage["seconds"] for stage in summary["stages"]},
        "shard_bytes": num_bytes,
        "report": summary["report"],
    }


def timed(command: list[str]) -> dict[str, Any]:
    """Run a command; wall seconds, peak memory of its process tree, its standard output."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    peaks = {"pss_bytes": 0, "anonymous_bytes": 0}
    done = threading.Event()
    watcher = threading.Thread(target=watch, args=(process.pid, peaks, done))
    watcher.start()
    output, _ = process.communicate()
    done.set()
    watcher.join()
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed with exit code {process.returncode}")
    return {"seconds": time.perf_counter() - started, "output": output} | {f"peak_{key}": peaks[key] for key in peaks}


def watch(pid: int, peaks: dict[str, int], done: threading.Event) -> None:
    """Sample the memory of a process tree until ``done``."""
    while not done.wait(SAMPLE_SECONDS):
        totals = dict.fromkeys(peaks, 0)
        for member in tree(pid):
            try:
                lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has ended
            sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
            totals["pss_bytes"] += sizes.get("Pss", 0)
            totals["anonymous_bytes"] += sizes.get("Anonymous", 0)
        for key in peaks:
            peaks[key] = max(peaks[key], totals[key])


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    members = [pid]
    for member in members:
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                members += [int(child) for child in children.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue
    return members


def show(result: dict[str, Any]) -> None:
    """Print for people."""
    report = result["report"]
    print(f"{result['times']} x the real mix, {result['workers']} workers, hbp-prep {result['versions']['hbp-prep']}")
    for stage, seconds in result["stage_seconds"].items():
        print(f"  {stage:<14}{seconds:8.1f} s")
    for name in ("run", "verify"):
        part = result[name]
        print(
            f"  {name + ' in all':<14}{part['seconds']:8.1f} s, peak {part['peak_pss_bytes'] / 2**20:,.0f} MiB"
            f" ({part['peak_anonymous_bytes'] / 2**20:,.0f} MiB anonymous)"
        )
    print(f"  shards {result['shard_bytes'] / 1e6:,.0f} MB")
    print(json.dumps(report, indent=1)[:2000])


if __name__ == "__main__":
    main()
