"""Corpus to store to table: nothing lost, nothing twice, resume gives the same bytes."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hbp_prep.corpus.scan import scan_corpus
from hbp_prep.corpus.types import Corpus, SourceSpec
from hbp_prep.engines.local import LocalEngine
from hbp_prep.errors import ConfigError, DataError
from hbp_prep.manifest.tables import REJECTED_SCHEMA
from hbp_prep.reasons import Reason
from hbp_prep.tokenization.rejected import count_rejected, row_numbers, write_rejected
from hbp_prep.tokenization.run import TokenizationSummary, tokenize_corpus
from hbp_prep.tokenization.store import TokenStore, unit_path
from hbp_prep.tokenization.table import SampleTable, build_sample_table, check_rejected_fraction
from hbp_prep.tokenization.tokenizer import TokenizationSpec
from tests.unit.tokenization.building import write_folder

HEADERS = 9 + 1 + 14  # tokens of "<|user|>\n", "\n" and "<|assistant|>\n"
UNIT_BYTES = 400


def row(number: int, answer: str | None = None) -> str:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer or "a" * (1 + number % 7)}]
    return json.dumps({"id": number, "messages": messages})


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a tokenizer and two files: good rows with blank lines between, and rows with faults."""
    write_folder(tmp_path / "tokenizer")
    (tmp_path / "good.jsonl").write_text("".join(row(n) + "\n" * (1 + n % 3) for n in range(40)))
    bad = [
        row(0),
        "{",
        '{"messages": []}',
        '{"messages": [{"role": "user", "content": "q"}]}',
        row(4),
        row(5, "long" * 9),
    ]
    (tmp_path / "mixed.jsonl").write_text("\n".join(bad))
    return tmp_path


def scan(work: Path, *, weight: float = 1.0, limit: int | None = None, mixed_weight: float = 1.0) -> Corpus:
    sources = [
        SourceSpec(name="good", paths=(str(work / "good.jsonl"),), weight=weight, limit=limit),
        SourceSpec(name="mixed", paths=(str(work / "mixed.jsonl"),), weight=mixed_weight),
    ]
    return scan_corpus(sources, unit_bytes=UNIT_BYTES)[0]


def tokenize(work: Path, corpus: Corpus, **changes: Any) -> TokenizationSummary:
    spec = TokenizationSpec(tokenizer=str(work / "tokenizer"), chat_template=changes.pop("chat_template", "tulu3"))
    return tokenize_corpus(corpus, spec, folder=work / "store", **{"seed": 5, **changes})


def table_of(work: Path, corpus: Corpus, **changes: Any) -> SampleTable:
    settings = {
        "seed": 5,
        "max_tokens": 1000,
        "over_length": "drop",
        "rejected_path": work / "rejected.arrow",
    } | changes
    return build_sample_table(corpus, work / "store", **settings)


def rejected_lines(work: Path) -> list[dict[str, Any]]:
    return pa.ipc.open_file(pa.memory_map(str(work / "rejected.arrow"))).read_all().to_pylist()


def contents(work: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((work / "store").iterdir())}


class Counting:
    """A ``map`` that counts what it runs, and may stop half-way."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.num_tasks = 0
        self.stop_after = stop_after

    def __call__(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        for task in tasks:
            if self.num_tasks == self.stop_after:
                raise KeyboardInterrupt
            self.num_tasks += 1
            yield function(task)


class Listening:
    """A progress that adds up."""

    def __init__(self) -> None:
        self.totals: list[int | None] = []
        self.done = 0
        self.num_finished = 0

    def start(self, label: str, total: int | None, unit: str) -> None:
        self.totals.append(total)

    def advance(self, amount: int) -> None:
        self.done += amount

    def finish(self) -> None:
        self.num_finished += 1

    def say(self, message: str) -> None:
        raise AssertionError(message)


def test_every_row_is_a_sample_or_rejected(work: Path) -> None:
    """Pitfalls 19, 22: bad rows are listed with file, row and reason; the others are all there."""
    corpus = scan(work)
    assert len(corpus.units) > 5
    summary = tokenize(work, corpus)
    table = table_of(work, corpus)
    assert (summary.num_rows, summary.num_selected, summary.num_accepted) == (46, 46, 43)
    assert summary.num_tokens == table.num_tokens.sum()
    assert summary.num_loss_tokens == table.num_loss_tokens.sum()
    lines = rejected_lines(work)
    assert [(line["row"], line["reason"]) for line in lines] == [
        (1, "invalid_json"),
        (2, "no_messages"),
        (3, "no_loss_tokens"),
    ]
    assert {(line["file"], line["source"]) for line in lines} == {(str(work / "mixed.jsonl"), "mixed")}
    assert table.num_rows + len(lines) == summary.num_rows
    good = table.source == 0
    text = (work / "good.jsonl").read_text().split("\n")
    assert [json.loads(text[number])["id"] for number in table.row[good]] == list(range(40))
    assert table.num_tokens[good].tolist() == [HEADERS + 1 + 2 + n % 7 for n in range(40)]
    assert table.num_loss_tokens[good].tolist() == [2 + n % 7 for n in range(40)]
    store = TokenStore(work / "store")
    ids = [store.unit(int(u)).original_ids[int(i)].as_py() for u, i in zip(table.unit, table.index, strict=True)]
    assert ids == [str(n) for n in [*range(40), 0, 4, 5]]
    assert pa.ipc.open_file(pa.memory_map(str(work / "rejected.arrow"))).schema.equals(REJECTED_SCHEMA)


def test_workers_do_not_change_a_byte(work: Path) -> None:
    """Pitfall 23."""
    corpus = scan(work, weight=0.5)
    tokenize(work, corpus)
    alone = contents(work)
    (work / "store").rename(work / "alone")
    tokenize(work, corpus, map_tasks=LocalEngine(2).map)
    assert contents(work) == alone


def test_resume_runs_only_what_is_missing_and_gives_the_same_bytes(work: Path) -> None:
    """Pitfall 18."""
    corpus = scan(work)
    whole = tokenize(work, corpus)
    expected = contents(work)
    for path in (work / "store").iterdir():
        path.unlink()
    with pytest.raises(KeyboardInterrupt):
        tokenize(work, corpus, map_tasks=Counting(stop_after=3))
    (work / "store" / "unit-000004.arrow.123.tmp").write_bytes(b"half")
    assert len(contents(work)) == 4
    unit_path(work / "store", 1).write_bytes(b"damaged")
    counting, listening = Counting(), Listening()
    summary = tokenize(work, corpus, map_tasks=counting, progress=listening)
    assert contents(work) == expected
    assert counting.num_tasks == len(corpus.units) - 2
    assert summary.num_reused_units == 2
    assert (listening.totals, listening.done, listening.num_finished) == ([46], 46, 1)
    assert summary.num_tokens == whole.num_tokens
    counting = Counting()
    tokenize(work, corpus, map_tasks=counting)
    assert counting.num_tasks == 0


def test_anything_that_matters_is_tokenised_anew(work: Path) -> None:
    """Pitfall 17: the key of a stored unit is of contents."""

    def reused(corpus: Corpus, **changes: Any) -> int:
        return tokenize(work, corpus, **changes).num_reused_units

    corpus = scan(work)
    num_units = len(corpus.units)
    assert reused(corpus) == 0
    assert reused(corpus, seed=6) == num_units
    assert reused(scan(work, weight=2.0)) == num_units
    assert 0 < reused(scan(work, weight=0.5)) < num_units
    assert reused(corpus, chat_template="chatml") == 0
    write_folder(work / "tokenizer", merges=(("a", "a"),))
    assert reused(corpus, chat_template="chatml") == 0
    text = (work / "good.jsonl").read_text()
    (work / "good.jsonl").write_text(text.replace('"q"', '"r"', 1))
    assert reused(scan(work), chat_template="chatml") < num_units
    with open(work / "good.jsonl", "a") as handle:
        handle.write(row(99) + "\n")
    changed = scan(work)
    assert 0 < reused(changed, chat_template="chatml") < len(changed.units)
    assert reused(changed, chat_template="chatml") == len(changed.units)


def test_units_that_are_gone_are_removed(work: Path) -> None:
    tokenize(work, scan(work))
    (work / "good.jsonl").write_text(row(0))
    corpus = scan(work)
    tokenize(work, corpus)
    assert len(contents(work)) == len(corpus.units) < 6


def test_tokenizer_that_changes_during_the_run_stops_it(work: Path) -> None:
    def change(function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        write_folder(work / "tokenizer", merges=(("b", "b"),))
        return map(function, tasks)

    with pytest.raises(DataError, match="has changed during the run"):
        tokenize(work, scan(work), map_tasks=change)


@pytest.mark.parametrize(
    ("weight", "limit", "detail"), [(0.5, None, "weight 0.5"), (1.0, 7, "limit 7"), (0.5, 7, "weight 0.5, limit 7")]
)
def test_rows_that_are_not_selected_are_listed_by_their_line(
    work: Path, weight: float, limit: int | None, detail: str
) -> None:
    corpus = scan(work, weight=weight, limit=limit)
    summary = tokenize(work, corpus)
    table = table_of(work, corpus)
    num_selected = limit or 20
    assert summary.num_selected == num_selected + 6
    assert sum(TokenStore(work / "store").unit(unit.index).batch.num_rows for unit in corpus.units) == num_selected + 6
    left_out = [line for line in rejected_lines(work) if line["reason"] == Reason.NOT_SELECTED]
    assert {line["detail"] for line in left_out} == {detail}
    text = (work / "good.jsonl").read_text().split("\n")
    lines = [line["row"] for line in left_out] + table.row[table.source == 0].tolist()
    assert sorted(json.loads(text[line])["id"] for line in lines) == list(range(40))
    assert table.num_rows + len(rejected_lines(work)) == summary.num_rows


def test_rejected_rows_come_in_the_order_of_the_files(work: Path) -> None:
    corpus = scan(work, weight=0.5, mixed_weight=0.5)
    tokenize(work, corpus)
    table_of(work, corpus)
    lines = [(line["file"], line["row"]) for line in rejected_lines(work)]
    assert lines == sorted(lines)
    assert len(set(lines)) == len(lines) > 23


def test_rows_used_more_than_once_are_consecutive_samples(work: Path) -> None:
    corpus = scan(work, weight=2.5)
    tokenize(work, corpus)
    table = table_of(work, corpus)
    copies = Counter(table.row[table.source == 0].tolist())
    assert sorted(set(copies.values())) == [2, 3]
    assert sum(copies.values()) == 100
    order = table.unit.astype(np.int64) * 1000 + table.index
    assert (np.diff(order) >= 0).all()
    assert table.num_rows == 43


def test_over_length_drop_lists_the_row(work: Path) -> None:
    """Pitfall 12."""
    corpus = scan(work)
    tokenize(work, corpus)
    table = table_of(work, corpus, max_tokens=60)
    assert table.num_tokens.max() <= 60
    assert table.num_rows == 42
    assert not table.truncated_from.any()
    assert ("too_long", "62 tokens, limit 60", 5) in [
        (line["reason"], line["detail"], line["row"]) for line in rejected_lines(work)
    ]


def test_limits_are_inclusive(work: Path) -> None:
    corpus = scan(work)
    tokenize(work, corpus)
    assert table_of(work, corpus, max_tokens=62, min_tokens=HEADERS + 3).num_rows == 43
    assert table_of(work, corpus, max_tokens=61, min_tokens=HEADERS + 4).num_rows == 43 - 1 - 7


def test_over_length_truncate_cuts_ids_and_mask_together(work: Path) -> None:
    """Pitfalls 2, 5: what is cut is cut from both; a row that loses all its targets is rejected."""
    corpus = scan(work)
    tokenize(work, corpus)
    table = table_of(work, corpus, max_tokens=HEADERS + 3, over_length="truncate")
    store = TokenStore(work / "store")
    assert table.num_tokens.tolist() == [HEADERS + 3] * 43
    assert table.truncated_from.tolist() == [0 if n % 7 == 0 else HEADERS + 3 + n % 7 for n in range(40)] + [0, 31, 62]
    for unit, index, length, loss in zip(table.unit, table.index, table.num_tokens, table.num_loss_tokens, strict=True):
        assert store.mask(int(unit), int(index))[:length].sum() == loss == 2
    none_left = table_of(work, corpus, max_tokens=HEADERS + 1, over_length="truncate")
    assert len(none_left) == 0
    assert none_left.num_rows == 0
    detail = "truncated from 62 to 25 tokens, none of them a target"
    assert ("no_loss_tokens", detail) in [(line["reason"], line["detail"]) for line in rejected_lines(work)]
    assert len(rejected_lines(work)) == 46


def test_over_length_raise_names_the_row(work: Path) -> None:
    corpus = scan(work)
    tokenize(work, corpus)
    with pytest.raises(DataError, match=r"mixed\.jsonl, row 5: 62 tokens, the longest packing length is 61"):
        table_of(work, corpus, max_tokens=61, over_length="raise")
    assert not (work / "rejected.arrow").exists()
    assert table_of(work, corpus, max_tokens=62, over_length="raise").num_rows == 43


def test_too_short_rows_are_listed(work: Path) -> None:
    corpus = scan(work)
    tokenize(work, corpus)
    table_of(work, corpus, min_tokens=HEADERS + 4)
    assert count_rejected(work / "rejected.arrow")["too_short"] == 7
    assert "27 tokens, at least 28" in [line["detail"] for line in rejected_lines(work)]


@pytest.mark.parametrize("changes", [{"over_length": "cut"}, {"min_tokens": 0}, {"min_tokens": 1001}])
def test_contradictory_limits_are_refused(work: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"over_length|min_tokens"):
        table_of(work, scan(work), **changes)


def test_store_of_other_rows_is_refused(work: Path) -> None:
    corpus = scan(work, weight=0.5)
    tokenize(work, corpus)
    with pytest.raises(DataError, match="not of this corpus or seed"):
        table_of(work, corpus, seed=6)


def test_rejected_fraction(work: Path) -> None:
    """Pitfall 19: every source by itself, without rows left out by weight or length; an example of every reason."""
    corpus = scan(work, weight=0.5)
    tokenize(work, corpus)
    table = table_of(work, corpus)
    path = work / "rejected.arrow"
    assert count_rejected(path) == {"not_selected": 20, "invalid_json": 1, "no_messages": 1, "no_loss_tokens": 1}
    check_rejected_fraction(path, table, corpus, 0.5)
    with pytest.raises(DataError, match=r"source 'mixed': 3 of 6 rows \(50\.0%\) cannot be used") as caught:
        check_rejected_fraction(path, table, corpus, 0.49)
    for reason in ("invalid_json", "no_messages", "no_loss_tokens"):
        assert reason in str(caught.value)
    assert f"{work / 'mixed.jsonl'}, row 3: no assistant message" in str(caught.value)
    assert "not_selected" not in str(caught.value)
    short = table_of(work, corpus, max_tokens=HEADERS + 3)
    assert count_rejected(path)["too_long"] > 10
    check_rejected_fraction(path, short, corpus, 0.75)


def test_rejected_file_without_lines_still_has_its_columns(work: Path) -> None:
    with write_rejected(work / "none.arrow", scan(work)):
        pass
    table = pa.ipc.open_file(pa.memory_map(str(work / "none.arrow"))).read_all()
    assert table.schema.equals(REJECTED_SCHEMA)
    assert table.num_rows == 0
    assert count_rejected(work / "none.arrow") == {}
    with pytest.raises(DataError, match="missing or damaged"):
        count_rejected(work / "gone.arrow")


def test_row_numbers_skip_blank_lines(work: Path) -> None:
    corpus = scan(work)
    numbers = np.concatenate([row_numbers(corpus, unit) for unit in corpus.units if unit.file == 0])
    text = (work / "good.jsonl").read_text().split("\n")
    assert numbers.tolist() == [number for number, line in enumerate(text) if line]


def test_table_round_trip(work: Path) -> None:
    corpus = scan(work)
    tokenize(work, corpus)
    table = table_of(work, corpus)
    for name in ("a", "b"):
        table.save(work / name)
    assert (work / "a").read_bytes() == (work / "b").read_bytes()
    loaded = SampleTable.load(work / "a")
    assert loaded.lost_tokens == table.lost_tokens
    columns = {name: column for name, column in vars(table).items() if name != "lost_tokens"}
    for name, column in columns.items():
        assert getattr(loaded, name).dtype == column.dtype
        assert getattr(loaded, name).tolist() == column.tolist()
    (work / "a").write_bytes(b"x")
    with pytest.raises(DataError, match="missing or damaged"):
        SampleTable.load(work / "a")
    empty = SampleTable(**{name: column[:0] for name, column in columns.items()})
    empty.save(work / "empty")
    assert len(SampleTable.load(work / "empty")) == 0


def test_eos_is_where_the_mask_ends(work: Path) -> None:
    """Pitfall 3, from the files: the last target of every sample is the eos token."""
    corpus = scan(work)
    tokenize(work, corpus)
    store = TokenStore(work / "store")
    table = table_of(work, corpus)
    eos_id = 256 + 1
    for unit, index in zip(table.unit.tolist(), table.index.tolist(), strict=True):
        assert store.tokens(unit, index)[store.mask(unit, index)][-1] == eos_id


def test_the_sentence_says_why_the_reference_encodes() -> None:
    counts = {"num_units": 1, "num_reused_units": 0, "num_rows": 9, "num_selected": 9, "num_accepted": 8}
    counts |= {"num_tokens": 5000, "num_loss_tokens": 70, "num_special_texts": 1}
    why = TokenizationSummary(**counts, backend="tokenizers", why_not_fast="it is not a byte-level tokenizer")
    assert why.sentence == (
        "Tokenised with tokenizers (gigatoken is faster, but it is not a byte-level tokenizer): 8 rows, 5,000 tokens; "
        "1 special tokens' texts inside rows"
    )
    assert "(" not in TokenizationSummary(**counts, backend="gigatoken").sentence
    assert TokenizationSummary(**counts).sentence.startswith("Tokenised: 8 rows")
