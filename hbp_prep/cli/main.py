"""The ``hbp-prep`` command."""

import click

from hbp_prep import __version__
from hbp_prep.cli.console import ErrorsAsSentences

_EPILOG = """\b
Examples:
  hbp-prep demo-corpus demo            make a small corpus to play with
  hbp-prep run demo/recipe.yaml --output out
  hbp-prep verify out                  prove that nothing was lost or damaged
  hbp-prep report out                  show the packing-quality report again
  hbp-prep inspect out --pack 0        look into a pack
"""


_COMMANDS = {
    "run": "hbp_prep.cli.run:run_command",
    "verify": "hbp_prep.cli.verify:verify_command",
    "report": "hbp_prep.cli.report:report_command",
    "plan": "hbp_prep.cli.plan:plan_command",
    "compare": "hbp_prep.cli.compare:compare_command",
    "replan": "hbp_prep.cli.replan:replan_command",
    "inspect": "hbp_prep.cli.inspect:inspect_command",
    "demo-corpus": "hbp_prep.cli.demo_corpus:demo_corpus_command",
    "schema": "hbp_prep.cli.schema:schema_command",
    "clean": "hbp_prep.cli.clean:clean_command",
}


@click.group(
    cls=ErrorsAsSentences,
    commands_by_place=_COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="hbp-prep")
def main() -> None:
    """Prepare chat corpora for long-context fine-tuning: exact loss masks, balanced packs, Arrow shards, a manifest.

    Exit codes: 0 success, 1 the work failed, 2 the call or the recipe is wrong.
    """
