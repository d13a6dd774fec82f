"""``hbp-prep inspect``."""

from pathlib import Path

import click
from rich.console import Console

from hbp_prep.errors import ConfigError
from hbp_prep.pipeline.look import Target, look

_EPILOG = """\b
Examples:
  hbp-prep inspect out                     the first pack
  hbp-prep inspect out --pack 12
  hbp-prep inspect out --sample 4711       one sample, wherever it went
  hbp-prep inspect out --step 3 --micro-step 0 --dp-rank 2
"""


@click.command("inspect", short_help="Show a pack, a sample or a step, decoded.", epilog=_EPILOG)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--pack", type=click.IntRange(min=0), help="Pack id.")
@click.option("--sample", type=click.IntRange(min=0), help="Sample id.")
@click.option("--step", type=click.IntRange(min=0), help="Optimizer step: lists its micro-steps.")
@click.option("--micro-step", type=click.IntRange(min=0), help="With --step: lists its packs.")
@click.option("--dp-rank", type=click.IntRange(min=0), help="With --step and --micro-step: the pack of this rank.")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="Tokenizer folder (default: the run's own).")
@click.option("--full", is_flag=True, help="Do not shorten long texts.")
@click.option("--no-color", is_flag=True, help="Mark loss tokens with brackets instead of style.")
def inspect_command(
    *,
    out: Path,
    pack: int | None,
    sample: int | None,
    step: int | None,
    micro_step: int | None,
    dp_rank: int | None,
    tokenizer: Path | None,
    full: bool,
    no_color: bool,
) -> None:
    """Show a pack, a sample or a step of OUT, decoded, with the loss tokens highlighted."""
    if sum(value is not None for value in (pack, sample, step)) > 1:
        raise ConfigError("--pack, --sample and --step exclude each other; choose one")
    if (micro_step is not None and step is None) or (dp_rank is not None and micro_step is None):
        raise ConfigError("--micro-step goes with --step, and --dp-rank with both")
    console = Console(highlight=False, no_color=no_color or None)
    plain = no_color or not console.is_terminal
    target = Target(pack=pack, sample=sample, step=step, micro_step=micro_step, dp_rank=dp_rank)
    console.print(look(out, target, tokenizer=tokenizer, full=full, plain=plain))
