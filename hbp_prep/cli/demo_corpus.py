"""``hbp-prep demo-corpus``."""

from pathlib import Path

import click

from hbp_prep.cli.console import progress_bars
from hbp_prep.demo.build import build_demo_corpus

_EPILOG = """\b
Example:
  hbp-prep demo-corpus demo && hbp-prep run demo/recipe.yaml --output out
"""


@click.command("demo-corpus", short_help="Make a small corpus to play with.", epilog=_EPILOG)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--quiet", "-q", is_flag=True, help="No progress bars and no summary.")
def demo_corpus_command(*, folder: Path, quiet: bool) -> None:
    """Make a small mixed corpus, a tokenizer and a recipe in FOLDER from Python's own library; no download."""
    with progress_bars(quiet=quiet) as progress:
        build_demo_corpus(folder, progress=progress)
    if not quiet:
        click.echo(f"Made {folder}. Next: hbp-prep run {folder / 'recipe.yaml'} --output OUT")
