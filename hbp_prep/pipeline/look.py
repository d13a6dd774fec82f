"""What ``hbp-prep inspect`` shows: the pack, sample or step that was asked for, decoded with the run's tokenizer."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from hbp_prep.errors import ConfigError
from hbp_prep.manifest.reader import ManifestReader
from hbp_prep.pipeline.folder import OutputFolder
from hbp_prep.pipeline.load import load_recipe
from hbp_prep.pipeline.specs import tokenization_spec
from hbp_prep.report.inspect import show_micro_step, show_pack, show_pack_of_rank, show_sample, show_step
from hbp_prep.tokenization.tokenizer import ChatTokenizer, TokenizationSpec


@dataclass(frozen=True, kw_only=True)
class Target:
    """What to show: a pack, a sample, or a step (of it a micro-step, of that a DP rank); nothing: the first pack."""

    pack: int | None = None
    sample: int | None = None
    step: int | None = None
    micro_step: int | None = None
    dp_rank: int | None = None


def look(out: Path, target: Target, *, tokenizer: Path | None, full: bool, plain: bool) -> RenderableType:
    """The target, ready to print.

    Args:
        tokenizer: Another folder than the one that the run used (it may have moved).
        full: Shorten nothing.
        plain: Mark loss tokens by brackets instead of style.

    Raises:
        ManifestError: ``out`` is not a finished folder.
        ConfigError: there is no such pack, sample or step, or the tokenizer is not the run's.
    """
    reader = ManifestReader(out)
    if target.step is not None and target.micro_step is None:
        return show_step(reader, target.step)
    if target.step is not None and target.micro_step is not None and target.dp_rank is None:
        return show_micro_step(reader, target.step, target.micro_step)
    token_texts = _tokenizer_of(reader, out, tokenizer).token_texts
    if target.step is not None and target.micro_step is not None and target.dp_rank is not None:
        return show_pack_of_rank(
            reader, target.step, target.micro_step, target.dp_rank, token_texts, full=full, plain=plain
        )
    if target.sample is not None:
        return show_sample(reader, target.sample, token_texts, full=full, plain=plain)
    return show_pack(reader, target.pack or 0, token_texts, full=full, plain=plain)


def _tokenizer_of(reader: ManifestReader, out: Path, folder: Path | None) -> ChatTokenizer:
    spec = tokenization_spec(load_recipe(OutputFolder(out).resolved))
    if folder is not None:
        spec = TokenizationSpec(tokenizer=str(folder), chat_template=spec.chat_template)
    tokenizer = ChatTokenizer.load(spec)
    used, found = reader.manifest.tokenizer, tokenizer.info
    if used["tokenizer_fingerprint"] != found["tokenizer_fingerprint"]:
        raise ConfigError(
            f"{spec.tokenizer} is not the tokenizer that {out} was made with ({used['name']}); "
            "name the right folder with --tokenizer"
        )
    return tokenizer
