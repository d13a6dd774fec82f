"""``hbp-prep plan``."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from hbp_prep.cli.console import output_options, progress_bars
from hbp_prep.cli.plan_options import curriculum_options, problem_options, read_problem
from hbp_prep.pipeline.folder import refuse_filled
from hbp_prep.pipeline.plan_only import plan_only, write_plan
from hbp_prep.report.plans import plan_tables
from hbp_prep.report.terminal import print_tables

_EPILOG = """\b
Examples:
  hbp-prep plan recipe.yaml --work out         tokenises into out/.work, which a later run uses
  hbp-prep plan --lengths lengths.parquet --groups 16K:1,128K:8 --world-size 32
  hbp-prep plan --lengths out/samples.arrow --groups 16K:1,128K:8 --world-size 64 --output plan64
"""


@click.command("plan", short_help="Plan without writing tokens: metrics, bounds, seconds.", epilog=_EPILOG)
@problem_options
@curriculum_options
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the plan's tables to this new folder.")
@output_options
def plan_command(
    *,
    output: Path | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Plan the samples of RECIPE, or of a file of lengths, and print what the plan would give.

    A RECIPE's corpora have to be tokenised to know their lengths: into WORK/.work, or a folder that is thrown away.
    """
    if output is not None:
        refuse_filled(output)
    with progress_bars(quiet=quiet) as progress:
        problem = read_problem(progress, **options)
        planned = plan_only(problem, progress)
        if output is not None:
            origin = str(options["lengths"] or options["recipe"])
            write_plan(output, planned.plan, problem.samples, origin)
    if as_json:
        click.echo(json.dumps(planned.to_dict()))
    elif not quiet:
        print_tables(plan_tables(planned.to_dict()), Console(highlight=False))
