"""Whatever is written comes back: every row once, in order, under its true number, however the file is cut."""

import json
import os
import string
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.corpus import parquet, rowstream
from hbp_prep.corpus.read import read_unit, read_values
from hbp_prep.corpus.scan import scan_corpus
from hbp_prep.corpus.types import Conversation, Corpus, SourceSpec
from hbp_prep.reasons import Reason, RowRejected

MAX_EXAMPLES = 150

# Text that trips splitters: line separators that are no newlines, quotes, escapes, brackets, blanks, a byte order mark.
TRICKY = st.text(st.sampled_from('\u2028\u2029\x85\x0b\x0c\x1c\r\n\t "\\/[]{},:aé漢\U0001f600\ufeff\x00'), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | TRICKY | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TRICKY, inner, max_size=4),
    max_leaves=8,
)
BLANKS = st.text(" \t\r", max_size=3)
JSON_BLANKS = st.text(" \t\r\n", max_size=3)
# Small sizes, so that rows, units and chunks meet in every way.
SIZES = st.integers(1, 60)
CHUNKS = st.integers(4, 50)


@contextmanager
def scanned(name: str, content: bytes, unit_bytes: int, chunk_bytes: int) -> Iterator[tuple[SourceSpec, Corpus]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(rowstream, "CHUNK_BYTES", chunk_bytes),
    ):
        path = Path(folder) / name
        path.write_bytes(content)
        # A second file gives the source a row even where the first has none.
        (Path(folder) / "zz.jsonl").write_text("{}")
        source = SourceSpec(name="s", paths=(str(path), str(Path(folder) / "zz.jsonl")), format="messages")
        yield source, scan_corpus([source], unit_bytes=unit_bytes)[0]


def check_units(corpus: Corpus, unit_bytes: int) -> None:
    """Units tile the file from its first row to its end, and are cut at the first row that is far enough."""
    units = [unit for unit in corpus.units if unit.file == 0]
    file = corpus.files[0]
    assert sum(unit.num_rows for unit in units) == file.num_rows
    assert all(unit.num_rows > 0 for unit in units)
    for before, after in pairwise(units):
        assert after.start == before.stop
        assert after.start - before.start >= unit_bytes
        assert after.first_ordinal == before.first_ordinal + before.num_rows
    if units:
        assert units[-1].stop == file.size_bytes
        assert units[0].first_ordinal == 0


def read_file(corpus: Corpus, selected: np.ndarray | None = None) -> list[tuple[int, object]]:
    """(row number, value) of the first file's rows; indices within units are checked here."""
    rows = []
    for unit in corpus.units:
        if unit.file == 0:
            part = None if selected is None else selected[unit.first_ordinal : unit.first_ordinal + unit.num_rows]
            items = list(read_values(corpus.files[0], unit, (), part))
            wanted = range(unit.num_rows) if part is None else np.flatnonzero(part).tolist()
            assert [index for _, index, _ in items] == list(wanted)
            if part is None:
                assert items[0][0] == unit.first_row
            rows += [(number, value) for number, _, value in items]
    return rows


@given(
    rows=st.lists(st.tuples(VALUES, BLANKS, BLANKS, st.booleans(), st.lists(BLANKS, max_size=2)), max_size=12),
    head=st.lists(BLANKS, max_size=2),
    mark=st.booleans(),
    ascii_only=st.booleans(),
    final_newline=st.booleans(),
    unit_bytes=SIZES,
    chunk_bytes=CHUNKS,
    data=st.data(),
)
@settings(deadline=None, max_examples=MAX_EXAMPLES)
def test_json_lines(rows, head, mark, ascii_only, final_newline, unit_bytes, chunk_bytes, data):
    text = "".join(blank + "\n" for blank in head)
    numbers = []
    for value, before, after, carriage_return, blanks in rows:
        numbers.append(text.count("\n"))
        text += before + json.dumps(value, ensure_ascii=ascii_only) + after + ("\r\n" if carriage_return else "\n")
        text += "".join(blank + "\n" for blank in blanks)
    if not final_newline:
        text = text.rstrip("\n")
    content = b"\xef\xbb\xbf" * mark + text.encode()
    with scanned("rows.jsonl", content, unit_bytes, chunk_bytes) as (_, corpus):
        check_units(corpus, unit_bytes)
        expected = [(number, row[0]) for number, row in zip(numbers, rows, strict=True)]
        assert read_file(corpus) == expected
        selected = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), bool)
        assert read_file(corpus, selected) == [row for row, keep in zip(expected, selected, strict=True) if keep]


@given(
    rows=st.lists(st.tuples(VALUES, JSON_BLANKS, JSON_BLANKS), max_size=12),
    blanks=st.tuples(JSON_BLANKS, JSON_BLANKS, JSON_BLANKS),
    mark=st.booleans(),
    indent=st.sampled_from([None, 1]),
    unit_bytes=SIZES,
    chunk_bytes=CHUNKS,
)
@settings(deadline=None, max_examples=MAX_EXAMPLES)
def test_json_array(rows, blanks, mark, indent, unit_bytes, chunk_bytes):
    elements = [before + json.dumps(value, indent=indent) + after for value, before, after in rows]
    text = blanks[0] + "[" + (",".join(elements) or blanks[1]) + "]" + blanks[2]
    with scanned("rows.json", b"\xef\xbb\xbf" * mark + text.encode(), unit_bytes, chunk_bytes) as (_, corpus):
        check_units(corpus, unit_bytes)
        assert read_file(corpus) == list(enumerate(json.loads(text)))


@st.composite
def damaged_arrays(draw) -> bytes:
    """JSON arrays with a few bytes lost, changed or added; or bytes of no sense at all."""
    text = bytearray(json.dumps(draw(st.lists(VALUES, max_size=5)), ensure_ascii=False).encode())
    pieces = st.sampled_from([b"[", b"]", b"{", b"}", b",", b'"', b"\\", b" ", b":", b"1", b"\xff", b""])
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(text)))
        text[place : place + draw(st.integers(0, 3))] = draw(pieces)
    return b"[" + bytes(text[1:])


@given(text=damaged_arrays(), unit_bytes=SIZES, chunk_bytes=CHUNKS)
@settings(deadline=None, max_examples=2 * MAX_EXAMPLES)
def test_array_scanner_agrees_with_the_standard_parser_and_loses_no_byte(text, unit_bytes, chunk_bytes):
    with scanned("rows.json", text, unit_bytes, chunk_bytes) as (_, corpus):
        rows = [value for _, value in read_file(corpus)]
        faults = [row for row in rows if isinstance(row, RowRejected)]
        try:
            value = json.loads(text.decode())
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, list) and not contains_nan(text):
            assert rows == value
        spans = row_spans(corpus.files[0].path, chunk_bytes)
        between = text[:1]
        place = 1
        for start, row in spans:
            between += text[place:start]
            place = start + len(row)
        between += text[place:]
        separators = bytes(byte for byte in between if byte not in b" \t\r\n,")
        assert separators == b"[]" or faults


def contains_nan(text: bytes) -> bool:
    """The standard parser takes NaN and Infinity, and lone surrogates, which are not JSON to us."""
    return any(word in text for word in (b"NaN", b"Infinity", b"\\u"))


def row_spans(path: str, chunk_bytes: int) -> list[tuple[int, bytes]]:
    stream = rowstream.RowStream("json", at_head=True)
    with open(path, "rb") as handle:
        rows = list(rowstream.read_rows(handle, stream, 0, os.path.getsize(path)))
    return [(start, row) for _, start, row in rows if row is not None]


@given(
    lines=st.lists(
        st.binary(max_size=30) | st.sampled_from([b'{"messages": [{"role": "user"}]}', b"[[[", b'"\\ud800"'])
    ),
    unit_bytes=SIZES,
    chunk_bytes=CHUNKS,
)
@settings(deadline=None, max_examples=MAX_EXAMPLES)
def test_any_bytes_give_one_result_per_line_that_is_not_blank(lines, unit_bytes, chunk_bytes):
    content = b"\n".join(lines)
    text = content.removeprefix(b"\xef\xbb\xbf")
    numbers = [number for number, line in enumerate(text.split(b"\n")) if line.strip(b" \t\r")]
    with scanned("rows.jsonl", content, unit_bytes, chunk_bytes) as (source, corpus):
        results = [item for unit in corpus.units if unit.file == 0 for item in read_unit(corpus.files[0], source, unit)]
    assert [number for number, *_ in results] == numbers
    assert all(isinstance(result, Conversation | RowRejected) for *_, result in results)


PARQUET_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | st.text(string.ascii_letters, max_size=4),
            "messages": st.none()
            | st.lists(
                st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=9)}),
                max_size=3,
            ),
        }
    ),
    min_size=1,
    max_size=60,
)
SCHEMA = pa.schema(
    {"id": pa.string(), "messages": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})), "n": pa.int8()}
)


@given(
    rows=PARQUET_ROWS,
    row_group_size=st.integers(1, 70),
    unit_bytes=st.integers(1, 300),
    batch_rows=st.integers(1, 9),
    data=st.data(),
)
@settings(deadline=None, max_examples=MAX_EXAMPLES)
def test_parquet(rows, row_group_size, unit_bytes, batch_rows, data):
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(parquet, "MAX_BATCH_ROWS", batch_rows):
        path = os.path.join(folder, "rows.parquet")
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path, row_group_size=row_group_size)
        source = SourceSpec(name="s", paths=(path,), format="messages")
        corpus, _ = scan_corpus([source], unit_bytes=unit_bytes)
        selected = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), bool)
        numbers = []
        for unit in corpus.units:
            assert unit.start // row_group_size == (unit.stop - 1) // row_group_size
            part = selected[unit.start : unit.stop]
            for number, index, result in read_unit(corpus.files[0], source, unit, part):
                assert number == unit.start + index
                check_parquet_row(rows[number], result)
                numbers.append(number)
    assert numbers == np.flatnonzero(selected).tolist()


def check_parquet_row(row: dict, result: Conversation | RowRejected) -> None:
    if row["messages"]:
        assert isinstance(result, Conversation)
        assert (result.messages, result.original_id) == (row["messages"], row["id"])
    else:
        assert isinstance(result, RowRejected)
        assert result.reason == (Reason.BAD_ROW if row["messages"] is None else Reason.NO_MESSAGES)
