"""``hbp-prep run``."""

import json
from pathlib import Path

import click
from rich.console import Console

from hbp_prep.cli.console import output_options, progress_bars
from hbp_prep.engines.local import LocalEngine
from hbp_prep.errors import ConfigError
from hbp_prep.pipeline.load import load_recipe
from hbp_prep.pipeline.runner import Mode, Runner
from hbp_prep.report.terminal import print_report
from hbp_prep.report.write import read_report
from hbp_prep.tokenization.backends import BACKENDS

_EPILOG = """\b
Examples:
  hbp-prep run pipelines/quickstart.yaml --output out
  hbp-prep run recipe.yaml --output out --set packing.strategy=bfd --set cluster.world_size=64
  hbp-prep run recipe.yaml --output out --set 'packing.groups=[{length: 128K, sp_degree: 8}]'
  hbp-prep run recipe.yaml --output out --resume
"""


@click.command("run", short_help="Prepare corpora: shards, schedule, manifest, report.", epilog=_EPILOG)
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the recipe (dotted).")
@click.option("--resume", is_flag=True, help="Continue an unfinished run, or redo only what a changed recipe touches.")
@click.option("--overwrite", is_flag=True, help="Remove what an earlier run wrote to the folder and start anew.")
@click.option(
    "--workers",
    "--num-proc",
    type=click.IntRange(min=1),
    help="Worker processes (default: all cores). Same bytes for any number.",
)
@click.option(
    "--tokenizer-backend",
    type=click.Choice(BACKENDS),
    help="Overrides tokenizer.backend (auto: the fast one where it is proven equal). Same bytes for any.",
)
@output_options
def run_command(
    *,
    recipe: Path,
    output: Path,
    overrides: tuple[str, ...],
    resume: bool,
    overwrite: bool,
    workers: int | None,
    tokenizer_backend: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Prepare the corpora that RECIPE names: shards, schedule, manifest and report in one folder."""
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other; choose one")
    mode = Mode.RESUME if resume else Mode.OVERWRITE if overwrite else Mode.NEW
    if tokenizer_backend is not None:
        overrides = (*overrides, f"tokenizer.backend={tokenizer_backend}")
    with progress_bars(quiet=quiet) as progress, LocalEngine(workers) as engine:
        runner = Runner(load_recipe(recipe, overrides), output, engine=engine, progress=progress)
        summary = runner.run(mode)
    if as_json:
        click.echo(json.dumps(summary.to_dict() | {"report": read_report(output)}))
    elif summary.nothing_to_do:
        click.echo(f"{output} is finished and up to date; nothing to do.")
    elif not quiet:
        print_report(read_report(output), Console(highlight=False))
        click.echo(f"Manifest: {output / 'manifest.json'}\nReport:   {output / 'report' / 'index.html'}")
