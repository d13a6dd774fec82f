"""``hbp-prep clean``."""

from pathlib import Path

import click

from hbp_prep.pipeline.folder import clean

_EPILOG = """\b
Example:
  hbp-prep clean out
"""


@click.command("clean", short_help="Remove the working files of a finished run.", epilog=_EPILOG)
@click.argument("out", type=click.Path(path_type=Path))
def clean_command(*, out: Path) -> None:
    """Remove OUT/.work (token store and ledger) of a finished run; readers never need it."""
    num_bytes = clean(out)
    click.echo(f"{num_bytes / 1e6:,.1f} MB removed. A changed recipe will now tokenise from the start.")
