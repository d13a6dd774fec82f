import dataclasses
import json
import math
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hbp_prep.corpus import read as read_module
from hbp_prep.corpus import rowstream
from hbp_prep.corpus.read import read_unit
from hbp_prep.corpus.scan import scan_corpus
from hbp_prep.corpus.types import Conversation, SourceSpec
from hbp_prep.errors import DataError
from hbp_prep.reasons import Reason, RowRejected

CHAT = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
GOOD = json.dumps({"messages": CHAT}).encode()


def read(path: Path, *, row_format: str = "messages", columns=None, unit_bytes: int = 4 << 20, selected=None) -> list:
    source = SourceSpec(name="chats", paths=(str(path),), format=row_format, columns=columns or {})
    corpus, _ = scan_corpus([source], unit_bytes=unit_bytes)
    return [item for unit in corpus.units for item in read_unit(corpus.files[0], source, unit, selected)]


def read_lines(tmp_path: Path, *lines: bytes) -> list:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    return read(path)


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        (b'{"messages": [', Reason.INVALID_JSON, "at character"),
        (b"{'messages': 1}", Reason.INVALID_JSON, "at character 1"),
        (b'{"messages": NaN}', Reason.INVALID_JSON, "at character 13"),
        (b'{"messages": -Infinity}', Reason.INVALID_JSON, "at character"),
        (b'{"messages": 1e999}', Reason.INVALID_JSON, "infinity"),
        (b"\x00\x00", Reason.INVALID_JSON, "at character 0"),
        (b'{"messages": "\x00"}', Reason.INVALID_JSON, "control character"),
        (b"[" * 100_000, Reason.INVALID_JSON, "depth"),
        (b"[" * 100_000 + b"]" * 100_000, Reason.INVALID_JSON, "depth"),
        (b'{"a": "\\udbc0", "b": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", Reason.INVALID_JSON, "surrogate"),
        (b'{"a": "\\udbc0", "b": 1' + b"0" * 5000 + b"}", Reason.INVALID_JSON, "surrogate"),
        (b'{"messages": "\xff"}', Reason.INVALID_UTF8, "invalid start byte (at byte 14 of the row)"),
        (b'{"messages": "\xed\xa0\x80"}', Reason.INVALID_UTF8, "at byte 14"),
        (b'{"messages": [{"role": "user", "content": "\\udbc0"}]}', Reason.LONE_SURROGATE, "\\udbc0"),
        (b'{"a": ["x", {"\\uDFFF": 1}]}', Reason.LONE_SURROGATE, "\\udfff"),
        (b'{"messages": "\\ud83d\\ude00 \\ude00"}', Reason.LONE_SURROGATE, "\\ude00"),
        (b"17", Reason.BAD_ROW, "a number"),
        (b"null", Reason.BAD_ROW, "null"),
        (b"{}", Reason.BAD_ROW, "no 'messages'"),
        (b'{"messages": []}', Reason.NO_MESSAGES, "empty"),
        (GOOD + GOOD, Reason.INVALID_JSON, "after document"),
    ],
)
def test_a_bad_line_is_one_rejected_row_and_its_neighbours_are_read(tmp_path, line, reason, detail):
    results = read_lines(tmp_path, GOOD, line, GOOD)
    assert [(number, index) for number, index, _ in results] == [(0, 0), (1, 1), (2, 2)]
    assert [type(result) for *_, result in results] == [Conversation, RowRejected, Conversation]
    rejected = results[1][2]
    assert rejected.reason == reason
    assert detail in rejected.detail


def test_a_pair_of_surrogate_escapes_is_one_character(tmp_path):
    [(_, _, result)] = read_lines(tmp_path, b'{"messages": [{"role": "user", "content": "\\ud83d\\ude00"}]}')
    assert result.messages[0]["content"] == "\U0001f600"


def test_a_line_of_fifty_megabytes(tmp_path):
    content = "long " * 10_000_000
    line = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    results = read_lines(tmp_path, GOOD, line, GOOD)
    assert results[1][2].messages[0]["content"] == content
    assert [number for number, *_ in results] == [0, 1, 2]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
@pytest.mark.parametrize("chunk_bytes", [7, 60])
def test_a_row_over_the_limit_is_rejected_unread(tmp_path, monkeypatch, name, chunk_bytes):
    monkeypatch.setattr(rowstream, "MAX_ROW_BYTES", len(GOOD))
    monkeypatch.setattr(read_module, "MAX_ROW_BYTES", len(GOOD))
    monkeypatch.setattr(rowstream, "CHUNK_BYTES", chunk_bytes)
    path = tmp_path / name
    longer = GOOD[:-1] + b" }"
    rows = [GOOD, longer, GOOD, longer]
    path.write_bytes(b"[" + b",".join(rows) + b"]" if name.endswith(".json") else b"\n".join(rows))
    results = read(path)
    assert [type(result) for *_, result in results] == [Conversation, RowRejected] * 2
    assert results[1][2].reason == Reason.BAD_ROW
    assert f"longer than {len(GOOD)} bytes" in results[1][2].detail


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[GOOD, GOOD", ["ok", "ok", "closing ] is missing: the file was cut short (at byte 135)"]),
        (b'[GOOD, {"mess', ["ok", "element at byte 69", "closing ] is missing"]),
        (b"[", ["closing ] is missing: the file was cut short (at byte 1)"]),
        (b"[] GOOD", ["text after the array's closing ] (at byte 3)"]),
        (b"[GOOD]\n[GOOD, GOOD]", ["ok", "text after the array's closing ] (at byte 69)"]),
        (b"[GOOD GOOD, GOOD]", ["element at byte 1: unexpected content after document", "ok"]),
        (b"[GOOD, }, GOOD]", ["ok", "element at byte 69", "ok"]),
        (b'[GOOD, {"a": NaN}, GOOD]', ["ok", "element at byte 69", "ok"]),
        (b'[GOOD, "\xff", GOOD]', ["ok", "element at byte 69: invalid start byte", "ok"]),
        (b'[GOOD, {"a: 1}, GOOD]', ["ok", "element at byte 69", "closing ] is missing"]),
        (b"[, GOOD,, GOOD, ]", ["ok", "ok"]),
    ],
)
@pytest.mark.parametrize("unit_bytes", [1, 4 << 20])
@pytest.mark.parametrize("chunk_bytes", [5, 1 << 18])
def test_a_damaged_array_loses_nothing_in_silence(tmp_path, monkeypatch, text, expected, unit_bytes, chunk_bytes):
    monkeypatch.setattr(rowstream, "CHUNK_BYTES", chunk_bytes)
    good = b'{"messages": [{"role": "user", "content": "Do not lose the row"}]}'
    assert len(good) == 66
    path = tmp_path / "rows.json"
    path.write_bytes(text.replace(b"GOOD", good))
    results = read(path, unit_bytes=unit_bytes)
    assert [number for number, *_ in results] == list(range(len(expected)))
    for (*_, result), wanted in zip(results, expected, strict=True):
        if wanted == "ok":
            assert isinstance(result, Conversation)
        else:
            assert wanted in result.detail
            assert result.reason in (Reason.INVALID_JSON, Reason.INVALID_UTF8)


def test_rows_not_selected_are_skipped_and_keep_their_numbers(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n\n".join([GOOD, b"not parsed", GOOD, GOOD]))
    selected = np.array([True, False, False, True])
    assert [(number, index) for number, index, _ in read(path, selected=selected)] == [(0, 0), (6, 3)]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_a_file_that_changed_since_the_scan_is_refused(tmp_path, name):
    path = tmp_path / name
    rows = [{"messages": CHAT}] * 3
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)) if name.endswith("jsonl") else json.dumps(rows))
    source = SourceSpec(name="chats", paths=(str(path),))
    corpus, _ = scan_corpus([source])
    with open(path, "ab") as handle:
        handle.write(b" ")
    with pytest.raises(DataError, match=rf"{name} has changed since it was scanned \(.* bytes now"):
        list(read_unit(corpus.files[0], source, corpus.units[0]))
    path.unlink()
    with pytest.raises(DataError, match=f"{name}: cannot be read"):
        list(read_unit(corpus.files[0], source, corpus.units[0]))


@pytest.mark.parametrize("replacement", [(b"\n", b" "), (b" ", b"\n")])
def test_other_rows_in_as_many_bytes_are_noticed(tmp_path, replacement):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join([GOOD] * 3))
    source = SourceSpec(name="chats", paths=(str(path),))
    corpus, _ = scan_corpus([source])
    path.write_bytes(path.read_bytes().replace(*replacement))
    with pytest.raises(DataError, match="has changed since it was scanned"):
        list(read_unit(corpus.files[0], source, corpus.units[0]))
    unsigned = dataclasses.replace(corpus.files[0], signature=None)
    with pytest.raises(DataError, match="other rows than then"):
        list(read_unit(unsigned, source, corpus.units[0]))


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join([GOOD] * 3))
    source = SourceSpec(name="chats", paths=(str(path),))
    corpus, _ = scan_corpus([source])
    rows = read_unit(corpus.files[0], source, corpus.units[0])
    next(rows)
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match="has changed since it was scanned"):
        list(rows)


def test_preference_rows_far_from_the_head_are_rejected_one_by_one(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join([GOOD] * 200 + [GOOD[:-1] + b', "label": false}']))
    source = SourceSpec(name="chats", paths=(str(path),))
    corpus, _ = scan_corpus([source])
    results = [result for _, _, result in read_unit(corpus.files[0], source, corpus.units[0])]
    assert [isinstance(result, RowRejected) for result in results] == [False] * 200 + [True]


def test_parquet_files_of_one_source_may_differ_in_what_is_not_needed(tmp_path):
    duration = pa.array([1, 2], pa.duration("ns"))
    dictionary = pa.array(["a", "b"]).dictionary_encode()
    binary = pa.array([b"\xff", b"\x00"], pa.binary())
    plain = {"messages": [CHAT, CHAT]}
    variants = [
        {**plain, "id": [7, 8], "when": duration},
        {**plain, "id": ["x", "y"], "kind": dictionary, "tools": pa.array(["[]", None])},
        {"image": binary, **plain},
        {"other": [1, 2]},
    ]
    for number, columns in enumerate(variants):
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    source = SourceSpec(name="chats", paths=(str(tmp_path / "*.parquet"),))
    corpus, _ = scan_corpus([source])
    results = [row for unit in corpus.units for *_, row in read_unit(corpus.files[unit.file], source, unit)]
    assert [row.original_id for row in results[:6]] == ["7", "8", "x", "y", None, None]
    assert all(row.messages == CHAT for row in results[:6])
    assert [row.reason for row in results[6:]] == [Reason.BAD_ROW] * 2


def test_text_in_parquet_that_is_no_utf8_rejects_its_row_alone(tmp_path):
    path = tmp_path / "rows.parquet"
    texts = pa.array([b"good", b"bad \xff", b"fine"]).cast(pa.binary())
    texts = pa.StringArray.from_buffers(3, *texts.buffers()[1:])
    pq.write_table(pa.table({"question": texts, "answer": ["a", "b", "c"]}), path)
    results = [result for *_, result in read(path, row_format="question_answer")]
    assert [type(result) for result in results] == [Conversation, RowRejected, Conversation]
    assert results[1].reason == Reason.INVALID_UTF8
    assert results[2].messages[0]["content"] == "fine"


def test_damaged_parquet_pages_are_a_data_error(tmp_path):
    path = tmp_path / "rows.parquet"
    rng = np.random.default_rng(5)
    texts = ["".join(map(chr, rng.integers(97, 122, 400))) for _ in range(2000)]
    pq.write_table(pa.table({"question": texts, "answer": texts}), path)
    source = SourceSpec(name="chats", paths=(str(path),), format="question_answer")
    corpus, _ = scan_corpus([source])
    data = bytearray(path.read_bytes())
    data[4:2000] = bytes(1996)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"rows\.parquet: row group 0 cannot be read"):
        list(read_unit(dataclasses.replace(corpus.files[0], signature=None), source, corpus.units[0]))


def test_two_columns_of_one_name_in_parquet(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["question", "question"]), path)
    with pytest.raises(DataError, match="two columns have the same name, among question"):
        read(path, row_format="question_answer")


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_columns_are_renamed_before_the_format_reads(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    row = {"ask": "Why?", "reply": "Because.", "question": "hidden", "score": math.pi}
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    else:
        path.write_text(json.dumps([row]) if suffix == ".json" else json.dumps(row))
    for row_format in ["question_answer", "auto"]:
        [(_, _, result)] = read(path, row_format=row_format, columns={"question": "ask", "answer": "reply"})
        assert result.messages == CHAT
