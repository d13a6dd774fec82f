"""What all commands share: errors as sentences, progress bars, ``--quiet`` and ``--json``."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from hbp_prep.errors import ConfigError, HbpError
from hbp_prep.progress import NoProgress
from hbp_prep.progress import Progress as ProgressListener
from hbp_prep.suggest import did_you_mean

Command = TypeVar("Command", bound=Callable[..., Any])

INTERRUPTED_EXIT_CODE = 130


class ErrorsAsSentences(click.Group):
    """A group whose commands end with one clear sentence and an exit code when something the user can mend is wrong.

    Commands are imported when they are called: they need half a second of libraries, which ``--version`` and the worker
    processes (they import the program's main module) can do without.

    Args:
        commands_by_place: {command's name: ``module:attribute``}, in the order of ``--help``.
    """

    def __init__(self, *args: Any, commands_by_place: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = commands_by_place

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._places:
            return None
        module, attribute = self._places[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._places and not args[0].startswith("-"):
            raise ConfigError(f"no command {args[0]!r}{did_you_mean(args[0], self._places)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # a terminal that cannot show a character gets its number instead
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except HbpError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            click.echo(f"Error: {where}{error.strerror or error}", err=True)
            ctx.exit(HbpError.exit_code)
        except KeyboardInterrupt:
            click.echo("Interrupted. What was finished is kept; continue a run with --resume.", err=True)
            ctx.exit(INTERRUPTED_EXIT_CODE)


def output_options(command: Command) -> Command:
    """Add ``--quiet`` and ``--json``."""
    command = click.option("--quiet", "-q", is_flag=True, help="No progress bars and no summary.")(command)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")(command)


class _Rate(ProgressColumn):
    """Units per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        unit = task.fields.get("unit", "")
        return Text(f"{_short(speed)} {unit}/s" if speed else "", style="progress.data.speed")


class _Bars:
    """Draws one bar at a time on standard error."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: Any = None

    def start(self, label: str, total: int | None, unit: str) -> None:
        self._task = self._progress.add_task(label, total=total, unit=unit)

    def advance(self, amount: int) -> None:
        self._progress.advance(self._task, amount)

    def finish(self) -> None:
        self._progress.stop_task(self._task)

    def say(self, message: str) -> None:
        self._progress.console.print(Text(message, style="dim"))


@contextmanager
def progress_bars(*, quiet: bool) -> Iterator[ProgressListener]:
    """Progress bars with rate and time left on standard error, or nothing."""
    if quiet:
        yield NoProgress()
        return
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr, highlight=False),
    )
    with bars:
        yield _Bars(bars)


def _short(number: float) -> str:
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{suffix}"
    return f"{number:.1f}"
