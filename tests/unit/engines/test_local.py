"""The local engine: order, errors, and workers that die."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from hbp_prep.engines.local import LocalEngine
from hbp_prep.errors import DataError


def square(number: int) -> int:
    return number * number


def fail_at(bad: int, number: int) -> int:
    if number == bad:
        raise DataError(f"task {number} is bad")
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_results_come_in_the_order_of_the_tasks(num_workers: int) -> None:
    with LocalEngine(num_workers) as engine:
        for _ in range(2):
            assert list(engine.map(square, range(20))) == [number**2 for number in range(20)]
            assert list(engine.map(square, [])) == []


@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_first_error_stops_the_run_as_it_is(num_workers: int) -> None:
    with LocalEngine(num_workers) as engine:
        with pytest.raises(DataError, match="task 3 is bad"):
            list(engine.map(partial(fail_at, 3), range(10)))
        assert list(engine.map(square, range(3))) == [0, 1, 4]


def test_a_killed_worker_is_a_sentence() -> None:
    with LocalEngine(2) as engine, pytest.raises(DataError, match="ended without a word"):
        list(engine.map(die, range(4)))


PROGRAM = """
import os, signal, time
from hbp_prep.engines.local import LocalEngine

def pid(_):
    time.sleep(0.2)
    return os.getpid()

if __name__ == "__main__":
    with LocalEngine(2) as engine:
        print(*sorted(set(engine.map(pid, range(8)))), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    # With inherited pipes, the call would not return before the workers have ended: so the output goes to a file.
    with open(tmp_path / "pids", "w") as output:
        done = subprocess.run([sys.executable, script], stdout=output, stderr=subprocess.DEVNULL, timeout=60)
    assert done.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert pids
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.05)
