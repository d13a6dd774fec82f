"""``hbp-prep schema``."""

import json

import click

from hbp_prep.pipeline.schema import recipe_schema

_EPILOG = """\b
Example (then put `# yaml-language-server: $schema=recipe.schema.json` on the first line of a recipe):
  hbp-prep schema > recipe.schema.json
"""


@click.command("schema", short_help="Print the JSON schema of recipes.", epilog=_EPILOG)
def schema_command() -> None:
    """Print the JSON schema of recipes, for editors."""
    click.echo(json.dumps(recipe_schema(), indent=2))
