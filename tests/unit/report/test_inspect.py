"""``inspect``: exactly the loss tokens are marked; nothing of the corpus is obeyed."""

import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from hbp_prep.errors import ConfigError
from hbp_prep.manifest.reader import ManifestReader
from hbp_prep.report.inspect import (
    TRAINED_STYLE,
    UNTRAINED_STYLE,
    segment_text,
    show_micro_step,
    show_pack,
    show_pack_of_rank,
    show_sample,
    show_step,
)

EVIL = "<script>alert('x')</script> [bold]&amp;"


def words(ids):
    return [f"<{token}>" for token in ids]


def printed(renderable, width=200):
    console = Console(file=io.StringIO(), width=width, highlight=False, no_color=True)
    console.print(renderable)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def reader(finished):
    return ManifestReader(finished)


masks = st.lists(st.booleans(), min_size=1, max_size=60)


@settings(deadline=None, max_examples=100)
@given(masks)
def test_exactly_the_loss_tokens_are_styled(mask):
    ids = np.arange(100, 100 + len(mask), dtype=np.int32)
    text = segment_text(ids, np.array(mask), words, full=False, plain=False)
    assert text.plain == "".join(words(ids))
    styles = {}
    for span in text.spans:
        for position in range(span.start, span.end):
            assert position not in styles
            styles[position] = span.style
    position = 0
    for token, trained in zip(words(ids), mask, strict=True):
        expected = TRAINED_STYLE if trained else UNTRAINED_STYLE
        assert {styles[index] for index in range(position, position + len(token))} == {expected}
        position += len(token)


@settings(deadline=None, max_examples=100)
@given(masks)
def test_exactly_the_loss_tokens_are_in_brackets(mask):
    ids = np.arange(100, 100 + len(mask), dtype=np.int32)
    text = segment_text(ids, np.array(mask), words, full=False, plain=True)
    assert text.spans == []
    inside, found = False, []
    for piece in text.plain.replace("【", "\0【\0").replace("】", "\0】\0").split("\0"):
        if piece in "【】" and piece:
            assert inside == (piece == "】")
            inside = piece == "【"
        else:
            found += [inside] * piece.count("<")
    assert found == mask


def test_style_differs_by_more_than_colour():
    assert {"bold", "underline"} <= set(TRAINED_STYLE.split())


def test_long_runs_are_shortened_in_the_middle_with_their_count():
    ids = np.arange(1000, dtype=np.int32)
    mask = ids >= 990
    text = segment_text(ids, mask, words, full=False, plain=True).plain
    assert "… 830 tokens not shown …" in text
    assert text.endswith("<989>【" + "".join(words(range(990, 1000))) + "】")
    assert "<79>" in text
    assert "<80>" not in text
    assert "<909>" not in text
    assert "<910>" in text
    assert segment_text(ids, mask, words, full=True, plain=True).plain.count("<") == 1000


def test_control_characters_and_markup_are_shown():
    text = segment_text(
        np.array([1, 2], np.int32),
        np.array([False, True]),
        lambda ids: [{1: "[bold]\x1b[31m\t\n", 2: "\x9b"}[token] for token in ids],
        full=True,
        plain=True,
    )
    assert text.plain == "[bold]␛[31m\t\n【\ufffd】"


def test_pack(reader, finished):
    pack = next(iter(reader.all_packs()))
    parts = show_pack(reader, pack.pack_id, words, full=True, plain=True).renderables
    shown = "\n".join(part.plain if isinstance(part, Text) else part.title.plain for part in parts[:-1])
    assert f"Pack {pack.pack_id}, packing group 2K (SP degree 1): {len(pack.seq_lengths)} segments" in shown
    assert shown.count("segment ") == len(pack.seq_lengths)
    body = shown.split("not trained\n", 1)[1]
    in_brackets = re.findall("【([^】]*)】", body)
    assert re.findall(r"<(\d+)>", "".join(in_brackets)) == [str(token) for token in pack.input_ids[pack.loss_mask]]
    assert re.findall(r"<(\d+)>", body) == [str(token) for token in pack.input_ids]
    for sample_id, length in zip(pack.sample_ids, pack.seq_lengths, strict=True):
        assert f"sample {sample_id} · " in shown
        assert f"{length:,} tokens, " in shown


def test_pack_with_many_segments_says_what_is_left_out(reader, monkeypatch):
    monkeypatch.setattr("hbp_prep.report.inspect._SHOWN_SEGMENTS", 3)
    pack = max(reader.all_packs(), key=lambda pack: len(pack.seq_lengths))
    shown = printed(show_pack(reader, pack.pack_id, words, plain=True))
    rest = pack.seq_lengths[3:]
    assert f"{len(rest)} more segments with {rest.sum():,} tokens (--full shows all)" in shown
    assert shown.count("· sample ") == 3


def test_sample_shows_where_it_came_from_and_went(reader):
    shown = printed(show_sample(reader, 920, words, plain=True))
    assert f"/data/{EVIL}.jsonl row 920" in shown
    assert f"id id-920 {EVIL}" in shown
    assert "packing group 16K" in shown
    shown = printed(show_sample(reader, 5, words, plain=True))
    assert "truncated: the row had 99,999 tokens" in shown
    row_id = 5 * 20_000
    assert f"<{row_id}>" in shown


def test_step_and_micro_step(reader):
    shown = printed(show_step(reader, 0))
    assert f"{reader.step_loss_tokens(0):,} loss tokens" in shown
    for micro_step in reader.micro_steps(0):
        assert f"{micro_step.num_tokens:,}" in shown
    shown = printed(show_micro_step(reader, 0, 0))
    for dp_rank in range(reader.micro_steps(0)[0].dp_size):
        pack = reader.pack(0, 0, dp_rank)
        assert f"{sum(int(length) ** 2 for length in pack.seq_lengths):,}" in shown
    shown = printed(show_pack_of_rank(reader, 0, 0, 1, words, plain=True))
    assert f"Pack {reader.pack(0, 0, 1).pack_id}," in shown
    assert "step 0, micro-step 0, DP rank 1" in shown


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda reader: show_pack(reader, 99_999, words), r"there is no pack 99999 .* pack ids are 0 to \d+"),
        (lambda reader: show_sample(reader, 940, words), "there is no sample 940 .* sample ids are 0 to 939"),
        (lambda reader: show_step(reader, 99), r"there is no step 99; steps are 0 to \d"),
        (lambda reader: show_micro_step(reader, 0, 9), "step 0 has no micro-step 9; its micro-steps are 0 to 3"),
        (
            lambda reader: show_pack_of_rank(reader, 0, 0, 9, words),
            "has no DP rank 9; packing group .* has DP ranks 0 to",
        ),
    ],
)
def test_what_is_not_there_is_named(reader, call, message):
    with pytest.raises(ConfigError, match=message):
        call(reader)
