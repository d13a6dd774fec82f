"""Length limits: whatever the rows and the policy, every token and every target is in a sample or counted as lost."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hbp_prep.corpus.selection import RowSelection
from hbp_prep.corpus.types import Corpus, CorpusFile, SourceSpec, Unit
from hbp_prep.errors import ConfigError
from hbp_prep.tokenization.encoding import EncodedSample
from hbp_prep.tokenization.lengths import num_covered, split_row
from hbp_prep.tokenization.store import TokenStore, UnitWriter, unit_path
from hbp_prep.tokenization.table import SampleTable, build_sample_table

Masks = list[list[bool]]
one_mask = st.lists(st.booleans(), min_size=1, max_size=40).filter(any).map(lambda mask: [False, *mask])
some_masks = st.lists(one_mask, min_size=1, max_size=6)


def turn_ends(mask: list[bool]) -> set[int]:
    """Behind which tokens an assistant turn ends."""
    return {at + 1 for at in range(len(mask) - 1) if mask[at] and not mask[at + 1]}


@settings(deadline=None, max_examples=300)
@given(mask=one_mask, max_tokens=st.integers(2, 45))
def test_parts_hold_every_target_and_end_with_turns_where_they_can(mask: list[bool], max_tokens: int) -> None:
    parts = split_row(np.array(mask), max_tokens)
    assert all(1 <= stop - first <= max_tokens for first, stop in parts)
    targets = [at for first, stop in parts for at in range(first + 1, stop) if mask[at]]
    assert targets == [at for at, is_target in enumerate(mask) if is_target]
    assert all(any(mask[first + 1 : stop]) for first, stop in parts)
    end = 0
    for first, stop in parts:
        assert first >= end or (first == end - 1 and mask[end])
        assert first <= end or stop - first == max_tokens  # where text is left out, the part is full
        reachable = {turn for turn in turn_ends(mask) if first + 1 < turn <= first + max_tokens}
        assert stop in (
            {len(mask)} if len(mask) <= first + max_tokens else {max(reachable, default=first + max_tokens)}
        )
        end = stop


@pytest.mark.parametrize(
    ("mask", "parts"),
    [
        ("..xx....xx..xx", [(0, 4), (4, 10), (10, 14)]),  # at turn borders
        ("..xx...", [(0, 4)]),  # what follows the last answer is left out
        ("..............xx", [(10, 16)]),  # a question longer than a part: its end stays
        ("..xx..........xx", [(0, 4), (10, 16)]),
        (".xxxxxxxxxx", [(0, 6), (5, 11)]),  # one target of context, none lost
        (".......xxxxxxxx..", [(4, 10), (9, 15)]),  # half a part of context
    ],
)
def test_examples(mask: str, parts: list[tuple[int, int]]) -> None:
    assert split_row(np.array([mark == "x" for mark in mask]), 6) == parts


@given(ranges=st.lists(st.tuples(st.integers(-1, 5), st.integers(1, 9)), max_size=6))
def test_covered_tokens_are_counted_once(ranges: list[tuple[int, int]]) -> None:
    """Gaps and lengths; -1: the last token again."""
    parts, end = [], 0
    for gap, length in ranges:
        first = max(0, end + gap)
        end = max(first + length, end)
        parts.append((first, end))
    assert num_covered(parts) == len({at for first, stop in parts for at in range(first, stop)})


def stored_corpus(folder: Path, masks: Masks) -> Corpus:
    """One file of one unit; token ids count on through all rows."""
    writer = UnitWriter()
    begin = 0
    for row, mask in enumerate(masks):
        ids = np.arange(begin, begin + len(mask), dtype=np.int32)
        writer.add(row, row, f"id-{row}", EncodedSample(input_ids=ids, loss_mask=np.array(mask)))
        begin += len(mask)
    writer.write(unit_path(folder / "store", 0), "f")
    source = SourceSpec(name="s", paths=("a.parquet",))
    file = CorpusFile(
        path="a.parquet",
        source=0,
        sha256="",
        size_bytes=1,
        file_format="parquet",
        row_format="messages",
        num_rows=len(masks),
    )
    unit = Unit(index=0, file=0, start=0, stop=1, first_row=0, first_ordinal=0, num_rows=len(masks))
    return Corpus(sources=(source,), files=(file,), units=(unit,))


def samples_of(table: SampleTable, store: TokenStore) -> list[tuple[NDArray[np.int32], NDArray[np.bool_]]]:
    """Ids and mask of every sample, by the table's own words."""
    found = []
    for row in range(len(table)):
        first = int(table.first_token[row])
        stop = first + int(table.num_tokens[row])
        ids = store.tokens(int(table.unit[row]), int(table.index[row]))[first:stop]
        mask = store.mask(int(table.unit[row]), int(table.index[row]))[first:stop].copy()
        mask[0] = False
        found.append((ids, mask))
    return found


@settings(deadline=None, max_examples=150)
@given(
    masks=some_masks,
    uses=st.lists(st.integers(1, 3), min_size=6, max_size=6),
    max_tokens=st.integers(3, 30),
    min_tokens=st.integers(1, 3),
    over_length=st.sampled_from(["drop", "truncate", "split"]),
)
def test_every_token_is_in_a_sample_or_counted(
    masks: Masks, uses: list[int], max_tokens: int, min_tokens: int, over_length: str
) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        corpus = stored_corpus(folder, masks)
        repeats = np.array(uses[: len(masks)], np.uint16)
        patch.setattr(RowSelection, "repeats", lambda *_: repeats)
        table = build_sample_table(
            corpus,
            folder / "store",
            seed=0,
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            over_length=over_length,
            rejected_path=folder / "rejected.arrow",
        )
        table.save(folder / "table.arrow")
        assert SampleTable.load(folder / "table.arrow").lost_tokens == table.lost_tokens
        samples = samples_of(table, TokenStore(folder / "store"))
    lengths = np.array([len(mask) for mask in masks])
    assert all(min_tokens <= len(ids) <= max_tokens for ids, _ in samples)
    assert [int(mask.sum()) for _, mask in samples] == table.num_loss_tokens.tolist()
    assert (table.num_loss_tokens > 0).all()
    assert (table.truncated_from == np.where(table.num_tokens < lengths[table.row], lengths[table.row], 0)).all()
    # Tokens of each use of a row, once each; the first token of a part may be the last of the one before.
    num_trained = 0
    for row, times in enumerate(repeats.tolist()):
        ranges = [(int(table.first_token[at]), int(table.num_tokens[at])) for at in np.flatnonzero(table.row == row)]
        per_use = len(ranges) // times
        assert ranges == ranges[:per_use] * times
        num_trained += times * len({at for first, number in ranges for at in range(first, first + number)})
    assert num_trained + sum(table.lost_tokens.values()) == int((lengths * repeats).sum())
    if over_length == "split" and min_tokens == 1:
        targets = sum(int(np.sum(mask)) * times for mask, times in zip(masks, repeats.tolist(), strict=True))
        assert int(table.num_loss_tokens.sum()) == targets


def test_split_needs_room_for_a_target(tmp_path: Path) -> None:
    corpus = stored_corpus(tmp_path, [[False, True]])
    with pytest.raises(ConfigError, match="split needs a packing length of at least 2"):
        build_sample_table(
            corpus, tmp_path / "store", seed=0, max_tokens=1, over_length="split", rejected_path=tmp_path / "r"
        )
