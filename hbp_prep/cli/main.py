"""The ``hbp-prep`` command."""

import click

from hbp_prep import __version__
from hbp_prep.cli.clean import clean_command
from hbp_prep.cli.console import ErrorsAsSentences
from hbp_prep.cli.demo_corpus import demo_corpus_command
from hbp_prep.cli.inspect import inspect_command
from hbp_prep.cli.report import report_command
from hbp_prep.cli.run import run_command
from hbp_prep.cli.schema import schema_command
from hbp_prep.cli.verify import verify_command

_EPILOG = """\b
Examples:
  hbp-prep demo-corpus demo            make a small corpus to play with
  hbp-prep run demo/recipe.yaml --output out
  hbp-prep verify out                  prove that nothing was lost or damaged
  hbp-prep report out                  show the packing-quality report again
  hbp-prep inspect out --pack 0        look into a pack
"""


@click.group(cls=ErrorsAsSentences, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hbp-prep")
def main() -> None:
    """Prepare chat corpora for long-context fine-tuning: exact loss masks, balanced packs, Arrow shards, a manifest.

    Exit codes: 0 success, 1 the work failed, 2 the call or the recipe is wrong.
    """


for _command in (
    run_command,
    verify_command,
    report_command,
    inspect_command,
    demo_corpus_command,
    schema_command,
    clean_command,
):
    main.add_command(_command)
