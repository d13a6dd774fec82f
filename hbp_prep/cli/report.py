"""``hbp-prep report``."""

import json
from pathlib import Path

import click
from rich.console import Console

from hbp_prep.cli.console import output_options, progress_bars
from hbp_prep.report.terminal import print_report
from hbp_prep.report.write import rebuild_report

_EPILOG = """\b
Examples:
  hbp-prep report out
  hbp-prep report out --json | jq .ours.abr
"""


@click.command("report", short_help="Rebuild and print the packing-quality report.", epilog=_EPILOG)
@click.argument("out", type=click.Path(path_type=Path))
@output_options
def report_command(*, out: Path, quiet: bool, as_json: bool) -> None:
    """Rebuild OUT/report from the prepared folder and print it."""
    with progress_bars(quiet=quiet) as progress:
        report = rebuild_report(out, progress)
    if as_json:
        click.echo(json.dumps(report))
    elif not quiet:
        print_report(report, Console(highlight=False))
        click.echo(f"Report: {out / 'report' / 'index.html'}")
