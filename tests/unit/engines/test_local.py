"""The local engine: order, errors, and workers that die."""

import os
import signal
from functools import partial

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
    assert list(LocalEngine(num_workers).map(square, range(20))) == [number**2 for number in range(20)]
    assert list(LocalEngine(num_workers).map(square, [])) == []


@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_first_error_stops_the_run_as_it_is(num_workers: int) -> None:
    results = LocalEngine(num_workers).map(partial(fail_at, 3), range(10))
    with pytest.raises(DataError, match="task 3 is bad"):
        list(results)


def test_a_killed_worker_is_a_sentence() -> None:
    with pytest.raises(DataError, match="ended without a word"):
        list(LocalEngine(2).map(die, range(4)))
