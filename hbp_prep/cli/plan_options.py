"""Options that the planning commands share, and their values: packing groups, curriculum."""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from hbp_prep.engines.local import LocalEngine
from hbp_prep.errors import ConfigError
from hbp_prep.pipeline.lengths import Problem, Settings, problem_of_lengths, problem_of_recipe
from hbp_prep.pipeline.load import load_recipe
from hbp_prep.planning.types import Curriculum
from hbp_prep.progress import Progress

Command = TypeVar("Command", bound=Callable[..., Any])

_WITH_RECIPE = ("work", "overrides", "workers")
_WITH_LENGTHS = (
    "groups",
    "world_size",
    "micro_steps_per_step",
    "hardware",
    "model",
    "strategy",
    "seed",
    "curriculum",
    "first_phase_steps",
    "first_phase_fraction",
)


def curriculum_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--curriculum`` and ``--first-phase-*``; the command is given one curriculum, which the planner checks."""

    @wraps(command)
    def with_curriculum(
        *, curriculum: str, first_phase_steps: int | None, first_phase_fraction: float | None, **others: Any
    ) -> Any:
        chosen = Curriculum(
            kind=curriculum, first_phase_steps=first_phase_steps, first_phase_fraction=first_phase_fraction
        )
        return command(curriculum=chosen, **others)

    for option in (
        click.option(
            "--first-phase-fraction",
            type=click.FloatRange(0, 1),
            help="The first phase, as a fraction of the steps that the shortest group can fill.",
        ),
        click.option("--first-phase-steps", type=click.IntRange(min=0), help="Optimizer steps of the first phase."),
        click.option("--curriculum", metavar="KIND", default="none", show_default=True, help="Order of groups."),
    ):
        with_curriculum = option(with_curriculum)
    return with_curriculum


def problem_options(command: Command) -> Command:
    """Add RECIPE or ``--lengths`` with the planner's settings."""
    for option in (
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="With --lengths."),
        click.option("--strategy", default="bfs", show_default=True, help="With --lengths: packing strategy."),
        click.option("--model", default="llama3.1-8b", show_default=True, help="With --lengths: cost model."),
        click.option("--hardware", default="h100-80g", show_default=True, help="With --lengths: cost model."),
        click.option(
            "--micro-steps-per-step", type=click.IntRange(min=1), default=4, show_default=True, help="With --lengths."
        ),
        click.option("--world-size", type=click.IntRange(min=1), help="With --lengths: GPUs in all."),
        click.option("--groups", metavar="LENGTH:SP[:GC],...", help="With --lengths: e.g. 16K:1:28,128K:8:28."),
        click.option(
            "--lengths",
            type=click.Path(path_type=Path),
            help="File with num_tokens and perhaps source: .parquet, .arrow, .csv.",
        ),
        click.option("--work", type=click.Path(path_type=Path), help="With RECIPE: folder to keep tokens in."),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the recipe."),
        click.option("--workers", "--num-proc", type=click.IntRange(min=1), help="With RECIPE: worker processes."),
        click.argument("recipe", required=False, type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


def read_problem(
    progress: Progress,
    *,
    recipe: Path | None,
    overrides: tuple[str, ...],
    work: Path | None,
    workers: int | None,
    lengths: Path | None,
    groups: str | None,
    world_size: int | None,
    curriculum: Curriculum,
    **settings: Any,
) -> Problem:
    """The problem that :func:`problem_options` name.

    Raises:
        ConfigError: neither or both of RECIPE and ``--lengths``, an option that goes with the other one, or a setting
            that is missing or wrong.
    """
    if (recipe is None) == (lengths is None):
        raise ConfigError("give either a RECIPE or --lengths FILE")
    if recipe is not None:
        _refuse(_WITH_LENGTHS, "belongs to --lengths; a RECIPE has its own settings: change them with --set KEY=VALUE")
        with LocalEngine(workers) as engine:
            return problem_of_recipe(load_recipe(recipe, overrides), work, engine, progress)
    _refuse(_WITH_RECIPE, "belongs to a RECIPE; --lengths FILE is neither tokenised nor configured")
    if lengths is None or groups is None or world_size is None:
        raise ConfigError("--lengths needs --groups and --world-size, e.g. --groups 16K:1,128K:8 --world-size 32")
    chosen = Settings(groups=groups, world_size=world_size, curriculum=curriculum, **settings)
    return problem_of_lengths(lengths, chosen)


def _refuse(options: Sequence[str], why: str) -> None:
    """Refuse options that the user gave and that would be ignored."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in options and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise ConfigError(f"{parameter.opts[0]} {why}")


def sp_degrees(text: str | None) -> dict[str, int] | None:
    """``16K:1,128K:8`` as {name: SP degree}."""
    if text is None:
        return None
    degrees = {}
    for part in text.split(","):
        name, _, degree = part.strip().partition(":")
        if not name or not degree.isdecimal() or int(degree) < 1:
            raise ConfigError(f"--groups {text!r}: write NAME:SP_DEGREE, e.g. 16K:1,128K:8")
        degrees[name] = int(degree)
    return degrees
