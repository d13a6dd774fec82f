"""What ``hbp-prep inspect`` prints: a pack, a sample, a step or a micro-step, decoded, as rich renderables.

Trained tokens are bold, underlined and green, the others dim; in plain output trained tokens stand in 【 】. Text of
the corpus is shown as text: no markup in it is obeyed, and control characters become visible signs.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from hbp_prep.errors import ConfigError
from hbp_prep.manifest.reader import ManifestReader, Pack
from hbp_prep.report.lookup import micro_steps_of, pack_by_id, packs_of_micro_step, sample_rows

TokenTexts = Callable[[Sequence[int]], list[str]]

TRAINED_STYLE = "bold underline green"
UNTRAINED_STYLE = "dim"
OPEN_TRAINED, CLOSE_TRAINED = "【", "】"

_SHOWN_TOKENS_OF_A_RUN = 160  # the first and last half of them, where it is longer
_SHOWN_SEGMENTS = 12

# C0 controls except tab and newline as their Unicode pictures, delete and C1 controls as a replacement sign: the
# terminal must not obey what a corpus says.
_VISIBLE = {code: 0x2400 + code for code in range(32) if code not in (9, 10)}
_VISIBLE |= dict.fromkeys(range(0x7F, 0xA0), 0xFFFD)


def show_pack(
    reader: ManifestReader, pack_id: int, token_texts: TokenTexts, *, full: bool = False, plain: bool = False
) -> RenderableType:
    """A pack with all of its segments.

    Args:
        token_texts: Ids to the text of each token.
        full: Shorten nothing.
        plain: Mark trained tokens by brackets instead of style.

    Raises:
        ConfigError: there is no such pack.
    """
    pack, place = pack_by_id(reader, pack_id)
    where = f"trained first at step {place.step}, micro-step {place.micro_step}, DP rank {place.dp_rank}"
    return _pack_parts(reader, pack, where, token_texts, full=full, plain=plain)


def show_pack_of_rank(
    reader: ManifestReader,
    step: int,
    micro_step: int,
    dp_rank: int,
    token_texts: TokenTexts,
    *,
    full: bool = False,
    plain: bool = False,
) -> RenderableType:
    """What one DP rank runs in one micro-step; see :func:`show_pack`.

    Raises:
        ConfigError: there is no such step, micro-step or DP rank.
    """
    chosen, packs = packs_of_micro_step(reader, step, micro_step)
    if not 0 <= dp_rank < len(packs):
        raise ConfigError(
            f"step {step}, micro-step {micro_step} has no DP rank {dp_rank}; packing group {chosen.group} has DP ranks "
            f"0 to {len(packs) - 1}"
        )
    where = f"step {step}, micro-step {micro_step}, DP rank {dp_rank}"
    return _pack_parts(reader, packs[dp_rank], where, token_texts, full=full, plain=plain)


def show_sample(
    reader: ManifestReader, sample_id: int, token_texts: TokenTexts, *, full: bool = False, plain: bool = False
) -> RenderableType:
    """One sample and where it went; see :func:`show_pack`.

    Raises:
        ConfigError: there is no such sample.
    """
    (row,) = sample_rows(reader, [sample_id])
    pack, place = pack_by_id(reader, row["pack_id"])
    (segment,) = np.flatnonzero(pack.sample_ids == sample_id)
    heading = Text(f"Sample {sample_id}: segment {segment + 1} of {len(pack.seq_lengths)} in pack {pack.pack_id}")
    heading.append(f", packing group {pack.group}\n")
    heading.append(f"trained first at step {place.step}, micro-step {place.micro_step}, DP rank {place.dp_rank}\n")
    if row["truncated_from"] is not None:
        heading.append(f"truncated: the row had {row['truncated_from']:,} tokens\n")
    heading.append(_legend(plain=plain))
    parts = _segment_parts(pack, int(segment), row, token_texts, full=full, plain=plain)
    return Group(heading, *parts, Rule(style="dim"))


def show_step(reader: ManifestReader, step: int) -> RenderableType:
    """The micro-steps of an optimizer step.

    Raises:
        ConfigError: there is no such step.
    """
    micro_steps = micro_steps_of(reader, step)
    first = micro_steps[0]
    heading = Text(f"Step {step} of {reader.num_steps} (epoch {first.epoch}, phase ")
    heading.append(visible(first.phase)).append(f"): {reader.step_loss_tokens(step):,} loss tokens")
    table = _table("micro-step", "packing group", "DP ranks", "SP degree", "tokens", "loss tokens", "predicted s")
    for item in micro_steps:
        table.add_row(
            str(item.micro_step),
            Text(visible(item.group)),
            str(item.dp_size),
            str(item.sp_degree),
            f"{item.num_tokens:,}",
            f"{item.num_loss_tokens:,}",
            f"{item.predicted_seconds:.3f}",
        )
    return Group(heading, table)


def show_micro_step(reader: ManifestReader, step: int, micro_step: int) -> RenderableType:
    """The packs of a micro-step, by DP rank.

    Raises:
        ConfigError: there is no such step or micro-step.
    """
    chosen, packs = packs_of_micro_step(reader, step, micro_step)
    heading = Text(f"Step {step}, micro-step {micro_step}: packing group ").append(visible(chosen.group))
    heading.append(f", {chosen.num_tokens:,} tokens, predicted {chosen.predicted_seconds:.3f} s")
    table = _table("DP rank", "pack", "segments", "tokens", "loss tokens", "attention cost")
    for dp_rank, pack in enumerate(packs):
        lengths = pack.seq_lengths.astype(np.int64)
        table.add_row(
            str(dp_rank),
            "empty" if pack.pack_id < 0 else str(pack.pack_id),
            f"{len(lengths):,}",
            f"{len(pack.input_ids):,}",
            f"{int(pack.loss_mask.sum()):,}",
            f"{int((lengths * lengths).sum()):,}",
        )
    return Group(heading, table)


def visible(text: str) -> str:
    """``text`` with control characters (all but tab and newline) as visible signs."""
    return text.translate(_VISIBLE)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, justify="right")
    for name in others:
        table.add_column(name, justify="right")
    return table


def _pack_parts(
    reader: ManifestReader, pack: Pack, where: str, token_texts: TokenTexts, *, full: bool, plain: bool
) -> RenderableType:
    if pack.pack_id < 0:
        return Group(Text(f"An empty pack without loss ({where}): the schedule was made for another world size."))
    group = reader.manifest.group(pack.group)
    num_tokens, num_segments = len(pack.input_ids), len(pack.seq_lengths)
    heading = Text(f"Pack {pack.pack_id}, packing group ").append(visible(pack.group))
    heading.append(
        f" (SP degree {group.sp_degree}): {num_segments:,} segments, {num_tokens:,} of {group.pack_length:,} tokens "
        f"({num_tokens / group.pack_length:.1%}), {int(pack.loss_mask.sum()):,} of them trained\n{where}\n"
    )
    heading.append(_legend(plain=plain))
    num_shown = num_segments if full else min(num_segments, _SHOWN_SEGMENTS)
    rows = sample_rows(reader, [int(sample_id) for sample_id in pack.sample_ids[:num_shown]])
    parts: list[RenderableType] = [heading]
    for segment, row in enumerate(rows):
        parts += _segment_parts(pack, segment, row, token_texts, full=full, plain=plain)
    if num_shown < num_segments:
        rest = pack.seq_lengths[num_shown:]
        parts.append(_border(Text(f"{len(rest):,} more segments with {int(rest.sum()):,} tokens (--full shows all)")))
    return Group(*parts, Rule(style="dim"))


def _legend(*, plain: bool) -> Text:
    if plain:
        return Text(f"{OPEN_TRAINED}trained{CLOSE_TRAINED} not trained")
    return Text.assemble(("trained", TRAINED_STYLE), "  ", ("not trained", UNTRAINED_STYLE))


def _border(title: Text) -> Rule:
    return Rule(title, align="left", characters="─", style="dim")


def _segment_parts(
    pack: Pack, segment: int, row: dict[str, object], token_texts: TokenTexts, *, full: bool, plain: bool
) -> list[RenderableType]:
    """The border and the text of one segment."""
    start, stop = int(pack.cu_seqlens[segment]), int(pack.cu_seqlens[segment + 1])
    ids, mask = pack.input_ids[start:stop], pack.loss_mask[start:stop]
    title = Text(f"segment {segment + 1} · sample {row['sample_id']} · ")
    title.append(f"{visible(str(row['source']))} · ")
    title.append(f"{len(ids):,} tokens, {int(mask.sum()):,} trained")
    origin = Text(f"{visible(str(row['file']))} row {row['row']}", style="dim")
    if row["original_id"] is not None:
        origin.append(f", id {visible(str(row['original_id']))}")
    return [_border(title), origin, segment_text(ids, mask, token_texts, full=full, plain=plain)]


def segment_text(
    ids: NDArray[np.int32], mask: NDArray[np.bool_], token_texts: TokenTexts, *, full: bool, plain: bool
) -> Text:
    """The tokens of a segment, trained ones marked.

    A long run of equally marked tokens is shortened in its middle and says by how much, so every border between
    trained and untrained tokens stays in sight.

    Args:
        ids: int32[n].
        mask: bool[n], true where the token is trained.
    """
    text = Text()
    borders = [0, *(np.flatnonzero(mask[1:] != mask[:-1]) + 1).tolist(), len(ids)]
    for start, stop in pairwise(borders):
        trained = bool(mask[start])
        if plain and trained:
            text.append(OPEN_TRAINED)
        style = "" if plain else TRAINED_STYLE if trained else UNTRAINED_STYLE
        num_hidden = 0 if full else max(0, stop - start - _SHOWN_TOKENS_OF_A_RUN)
        if num_hidden:
            head = start + _SHOWN_TOKENS_OF_A_RUN // 2
            text.append(_decoded(ids[start:head], token_texts), style=style)
            text.append(f"\n… {num_hidden:,} tokens not shown …\n", style="italic")
            text.append(_decoded(ids[head + num_hidden : stop], token_texts), style=style)
        else:
            text.append(_decoded(ids[start:stop], token_texts), style=style)
        if plain and trained:
            text.append(CLOSE_TRAINED)
    return text


def _decoded(ids: NDArray[np.int32], token_texts: TokenTexts) -> str:
    return visible("".join(token_texts([int(token) for token in ids])))
