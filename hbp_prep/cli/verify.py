"""``hbp-prep verify``."""

import json
from pathlib import Path

import click

from hbp_prep.cli.console import output_options, progress_bars
from hbp_prep.engines.local import LocalEngine
from hbp_prep.manifest.verify import examine

_EPILOG = """\b
Examples:
  hbp-prep verify out
  hbp-prep verify out --quick          the small tables only, in a fraction of a second
"""


@click.command("verify", short_help="Prove that a prepared folder is whole and right.", epilog=_EPILOG)
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--quick",
    is_flag=True,
    help="Read no tokens, masks or checksums: sizes, columns, sums, placement, schedule and metrics only.",
)
@click.option("--workers", "--num-proc", type=click.IntRange(min=1), help="Worker processes (default: all cores).")
@output_options
def verify_command(*, out: Path, quick: bool, workers: int | None, quiet: bool, as_json: bool) -> None:
    """Prove from the bytes that OUT keeps the contract: nothing lost, doubled, over-long or damaged."""
    with progress_bars(quiet=quiet) as progress, LocalEngine(workers) as engine:
        report = examine(out, quick=quick, map_tasks=engine.map, progress=progress)
    if as_json:
        click.echo(json.dumps(report.to_dict()))
    elif not quiet:
        for check in report.checks:
            click.echo(
                f"{'ok   ' if check.ok else 'FAIL '} {check.name}" + (f": {check.detail}" if check.detail else "")
            )
    report.raise_if_failed()
