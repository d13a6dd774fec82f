"""The sieve against plain Python: what filters and repetitions leave, and that each row left out has its reason."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.corpus import sieve as sieve_module
from hbp_prep.corpus.scan import scan_corpus
from hbp_prep.corpus.selection import RowSelection
from hbp_prep.corpus.sieve import content_hash, is_later_copy, sieve_corpus
from hbp_prep.corpus.types import Conversation, Corpus, LeftOut, SourceSpec

# (question, score); a question of None is a row without messages, a score of "x" one that the filter cannot judge.
ROWS = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c", "é"]), st.sampled_from([None, 1, 2, 3, "x"])),
    min_size=1,
    max_size=9,
)
Rows = list[tuple[str | None, object]]


def row_of(question: str | None, score: object, *, shuffled: bool) -> dict:
    """The same conversation in two spellings."""
    chat = [{"role": "user", "content": question or ""}, {"role": "assistant", "content": "yes"}]
    if question is None:
        return {"id": "none", "score": score}
    if shuffled:
        return {"score": score, "id": "2", "messages": [dict(reversed(message.items())) for message in chat]}
    return {"messages": chat, "score": score}


def written(folder: Path, sources: list[Rows]) -> tuple[SourceSpec, ...]:
    specs = []
    for number, rows in enumerate(sources):
        path = folder / f"{number}.jsonl"
        lines = [json.dumps(row_of(*row, shuffled=at % 2 == 1)) for at, row in enumerate(rows)]
        path.write_text("\n".join(lines) + "\n")
        where = "score >= 2" if number == 0 else None
        specs.append(SourceSpec(name=f"s{number}", paths=(str(path),), format="messages", where=where))
    return tuple(specs)


def expected(sources: list[Rows], deduplicate: bool) -> list[list[int]]:
    seen = set()
    verdicts = []
    for number, rows in enumerate(sources):
        verdicts.append([])
        for question, score in rows:
            verdict = LeftOut.NOT
            if number == 0 and score == "x":
                verdict = LeftOut.UNJUDGED
            elif number == 0 and (score is None or score < 2):
                verdict = LeftOut.FILTERED
            elif deduplicate and question is not None:
                verdict = LeftOut.DUPLICATE if question in seen else LeftOut.NOT
                seen.add(question)
            verdicts[-1].append(int(verdict))
    return verdicts


def found(corpus: Corpus) -> list[list[int]]:
    return [
        [LeftOut.NOT] * corpus.num_rows_of_source(source)
        if corpus.sieve_of(source) is None
        else corpus.sieve_of(source).tolist()
        for source in range(len(corpus.sources))
    ]


@given(sources=st.lists(ROWS, min_size=1, max_size=3), deduplicate=st.booleans(), unit_bytes=st.sampled_from([1, 400]))
@settings(deadline=None, max_examples=60)
def test_against_plain_python(sources: list[Rows], deduplicate: bool, unit_bytes: int) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        corpus, _ = scan_corpus(written(folder, sources), unit_bytes=unit_bytes)
        sieved = sieve_corpus(corpus, deduplicate=deduplicate, folder=folder / "work")
        assert found(sieved) == expected(sources, deduplicate)
        again = sieve_corpus(corpus, deduplicate=deduplicate, folder=folder / "work")
        assert found(again) == found(sieved)
        selection = RowSelection(sieved, 0)
        for unit in sieved.units:
            assert ((selection.repeats(unit) == 0) == (selection.why_not(unit) != LeftOut.NOT)).all()


def test_a_stored_sieve_is_used_for_the_same_files_only(tmp_path, monkeypatch) -> None:
    specs = written(tmp_path, [[("a", 3), ("b", 1)]])
    corpus, _ = scan_corpus(specs)
    first = sieve_corpus(corpus, deduplicate=True, folder=tmp_path / "work")
    (stored,) = (tmp_path / "work").iterdir()
    calls = []
    real = sieve_module.sieve_unit
    monkeypatch.setattr(sieve_module, "sieve_unit", lambda task: calls.append(task) or real(task))
    assert found(sieve_corpus(corpus, deduplicate=True, folder=tmp_path / "work")) == found(first)
    assert not calls
    whole = stored.read_bytes()
    for number, damaged in enumerate((whole[:-1], whole[:-1] + b"\3", whole[:9], b""), start=1):
        stored.write_bytes(damaged)
        assert found(sieve_corpus(corpus, deduplicate=True, folder=tmp_path / "work")) == found(first)
        assert len(calls) == number
        assert stored.read_bytes() == whole
    Path(specs[0].paths[0]).write_text(json.dumps(row_of("c", 3, shuffled=False)) + "\n")
    changed, _ = scan_corpus(specs)
    assert found(sieve_corpus(changed, deduplicate=True, folder=tmp_path / "work")) == [[LeftOut.NOT]]
    assert len(calls) == 5


def test_columns_for_filters_are_read_of_parquet(tmp_path) -> None:
    rows = [row_of("a", None, shuffled=False) | {"score": score, "other": 1} for score in (1, 2, 3)]
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    spec = SourceSpec(name="s", paths=(str(tmp_path / "a.parquet"),), where="score > 1 AND other = 1")
    corpus, _ = scan_corpus([spec])
    sieved = sieve_corpus(corpus, deduplicate=True, folder=tmp_path / "work")
    assert found(sieved) == [[LeftOut.FILTERED, LeftOut.NOT, LeftOut.DUPLICATE]]


@pytest.mark.parametrize(
    "other",
    [
        Conversation([{"role": "user", "content": "b"}], None),
        Conversation([{"role": "assistant", "content": "a"}], None),
        Conversation([{"role": "user", "content": "a", "weight": 0}], None),
        Conversation([{"role": "user", "content": "a"}], None, {"tools": [{"name": "f"}]}),
        Conversation([], None, text="a"),
    ],
)
def test_what_makes_conversations_different(other: Conversation) -> None:
    one = Conversation([{"role": "user", "content": "a"}], "id", {})
    assert content_hash(one) == content_hash(Conversation([{"content": "a", "role": "user"}], "other id"))
    assert content_hash(one) != content_hash(other)
    assert any(content_hash(other))


def test_no_content_is_no_repetition() -> None:
    hashes = np.array([(0, 0), (1, 0), (0, 0), (1, 0), (0, 1)], np.dtype([("high", "<u8"), ("low", "<u8")]))
    assert is_later_copy(hashes).tolist() == [False, False, False, True, False]
