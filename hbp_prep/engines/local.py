"""The local engine: many independent, idempotent tasks over worker processes.

Results come back in the order of the tasks, whatever the number of workers. With one worker everything runs in this
process. Workers are spawned, never forked (numba's and polars's threads do not survive a fork), and end with their
parent even when it is killed.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, Protocol, Self, TypeVar

from hbp_prep.errors import DataError

Task = TypeVar("Task")
Result = TypeVar("Result")

_TASKS_IN_FLIGHT_PER_WORKER = 2


class Engine(Protocol):
    """Runs independent tasks; stops at the first error."""

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield ``function(task)`` for every task, in order. ``function`` is a module-level function or a partial."""


class LocalEngine:
    """Worker processes on this machine, started when first needed and kept for the next tasks.

    A context manager: on leaving it, the workers end.
    """

    def __init__(self, num_workers: int | None = None) -> None:
        self.num_workers = num_workers or available_cores()
        self._pool: ProcessPoolExecutor | None = None
        self._workers = _Workers()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        tasks = list(tasks)
        if min(self.num_workers, len(tasks)) <= 1:
            yield from map(function, tasks)
            return
        pool = self._start()
        pending: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                pending.append(pool.submit(function, task))
                if len(pending) >= self.num_workers * _TASKS_IN_FLIGHT_PER_WORKER:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise DataError(
                "a worker process ended without a word (killed, or out of memory); "
                "run again with --resume and fewer --workers"
            ) from error
        finally:
            if pending:  # an error, or nobody wants the rest
                self._end()

    def _start(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._workers = _Workers()
            self._pool = ProcessPoolExecutor(self.num_workers, mp_context=self._workers, initializer=_end_with_parent)
        return self._pool

    def _end(self) -> None:
        """End the workers at once; what they have in hand is lost, which whole-or-absent files allow."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._workers.kill()
            self._pool = None


class _Worker(SpawnProcess):
    """A process that an interrupt does not reach, not even while it starts: that is its parent's business."""

    def start(self) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # children inherit it
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Workers(SpawnContext):
    """Starts workers, and knows them: an executor of Python before 3.14 cannot end those that it started."""

    def __init__(self) -> None:
        super().__init__()
        self._started: list[_Worker] = []

    def Process(self, *args: Any, **kwargs: Any) -> _Worker:  # type: ignore[override]  # noqa: N802
        worker = _Worker(*args, **kwargs)
        self._started.append(worker)
        return worker

    def kill(self) -> None:
        """End them wherever they are, also while they load libraries."""
        for worker in self._started:
            if worker.is_alive():
                worker.kill()


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with_parent() -> None:
    """Prepare a worker: it ends when its parent is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_wait_for_end, args=(parent.sentinel,), daemon=True).start()


def _wait_for_end(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
