"""How long stages tell the world how far they are. The command line draws bars; libraries and tests stay silent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """A listener: one bar at a time, in the order of the stages."""

    def start(self, label: str, total: int | None, unit: str) -> None:
        """A piece of work begins: ``total`` units of ``unit`` (``None``: unknown)."""

    def advance(self, amount: int) -> None:
        """``amount`` more units are done."""

    def finish(self) -> None:
        """The piece of work has ended."""

    def say(self, message: str) -> None:
        """One line for the user, printed above the bar."""


class NoProgress:
    """The silent listener."""

    def start(self, label: str, total: int | None, unit: str) -> None:
        return

    def advance(self, amount: int) -> None:
        return

    def finish(self) -> None:
        return

    def say(self, message: str) -> None:
        return


@contextmanager
def track(progress: Progress, label: str, total: int | None, unit: str) -> Iterator[None]:
    """Start and always finish one bar."""
    progress.start(label, total, unit)
    try:
        yield
    finally:
        progress.finish()
