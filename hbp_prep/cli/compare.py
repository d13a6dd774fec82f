"""``hbp-prep compare``."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from hbp_prep.cli.console import output_options, progress_bars
from hbp_prep.cli.plan_options import problem_options, read_problem
from hbp_prep.pipeline.compare import check_request, compare, write_chart
from hbp_prep.planning.types import Curriculum
from hbp_prep.report.plans import comparison_table
from hbp_prep.report.terminal import print_tables

_EPILOG = """\b
Examples:
  hbp-prep compare recipe.yaml --work out --chart compare.html
  hbp-prep compare --lengths lengths.parquet --groups 16K:1,128K:8 --world-size 32 --method isf --method hbp
"""


@click.command("compare", short_help="This plan beside the published methods, on one corpus.", epilog=_EPILOG)
@problem_options
@click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these (default: all).")
@click.option("--chart", type=click.Path(path_type=Path), help="Draw the comparison: .svg or .html.")
@output_options
def compare_command(
    *, methods: tuple[str, ...], chart: Path | None, quiet: bool, as_json: bool, **options: Any
) -> None:
    """Plan the samples of RECIPE, or of a file of lengths, with every method and print their metrics side by side.

    A RECIPE's corpora have to be tokenised to know their lengths: into WORK/.work, or a folder that is thrown away.
    """
    check_request(methods, chart)
    with progress_bars(quiet=quiet) as progress:
        problem = read_problem(progress, curriculum=Curriculum(), **options)
        rows = compare(problem, methods, progress)
    if chart is not None:
        write_chart(chart, rows)
    if as_json:
        click.echo(json.dumps(rows))
    elif not quiet:
        print_tables([comparison_table(rows)], Console(highlight=False))
