"""``hbp-prep replan``."""

import json
from pathlib import Path

import click
from rich.console import Console

from hbp_prep.cli.console import output_options, progress_bars
from hbp_prep.cli.plan_options import curriculum_options, sp_degrees
from hbp_prep.pipeline.replan import Changes, replan
from hbp_prep.planning.types import Curriculum
from hbp_prep.report.terminal import print_report
from hbp_prep.report.write import read_report

_EPILOG = """\b
Examples:
  hbp-prep replan out --world-size 64                        in place
  hbp-prep replan out --world-size 16 --output out16         beside it, over the same shards
  hbp-prep replan out --groups 128K:4 --curriculum two_phase --first-phase-steps 100
"""


@click.command("replan", short_help="A new schedule for another cluster over the same shards.", epilog=_EPILOG)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--world-size", type=click.IntRange(min=1), help="GPUs in all.")
@click.option("--groups", metavar="NAME:SP,...", help="New SP degrees of packing groups, e.g. 16K:1,128K:4.")
@click.option("--seed", type=click.IntRange(min=0), help="Of the new order.")
@click.option("--micro-steps-per-step", type=click.IntRange(min=1), help="Micro-steps between two updates.")
@click.option("--epochs", type=click.IntRange(min=1), help="Passes over the same packs.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="New folder (default: change OUT in place).")
@curriculum_options
@output_options
def replan_command(
    *,
    out: Path,
    world_size: int | None,
    groups: str | None,
    seed: int | None,
    micro_steps_per_step: int | None,
    epochs: int | None,
    output: Path | None,
    curriculum: Curriculum,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write a new schedule and manifest over the shards of OUT, without touching tokens.

    Where the packs of a packing group are no multiple of its ranks, one of its micro-steps gets empty packs.
    """
    changes = Changes(
        world_size=world_size,
        sp_degrees=sp_degrees(groups),
        seed=seed,
        micro_steps_per_step=micro_steps_per_step,
        epochs=epochs,
        curriculum=curriculum,
    )
    with progress_bars(quiet=quiet) as progress:
        replan(out, changes, progress, output)
    report = read_report(output or out)
    if as_json:
        click.echo(json.dumps(report))
    elif not quiet:
        print_report(report, Console(highlight=False))
        click.echo(f"Manifest: {(output or out) / 'manifest.json'}")
