import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hbp_prep.corpus.scan import scan_corpus
from hbp_prep.corpus.types import SourceSpec
from hbp_prep.errors import DataError
from hbp_prep.progress import NoProgress

OPENAI = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
SHAREGPT = [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "Because."}]
ROWS = {
    "messages": {"messages": OPENAI, "source": "x"},
    "conversations": {"conversations": SHAREGPT, "system": "", "tools": "[]"},
    "alpaca": {"instruction": "Why?", "input": "", "output": "Because."},
    "prompt_response": {"prompt": "Why?", "completion": "Because.", "template": "t"},
    "question_answer": {"question": "Why?", "answer": "Because."},
    "bare": OPENAI,
}


class Lines(NoProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


def detected(tmp_path: Path, *files: list, **settings) -> tuple[str, str]:
    (name,), line = detected_in_files(tmp_path, *files, **settings)
    return name, line


def detected_in_files(tmp_path: Path, *files: list, **settings) -> tuple[list[str], str]:
    for number, rows in enumerate(files):
        text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
        (tmp_path / f"{number}.jsonl").write_text(text)
    listener = Lines()
    source = SourceSpec(name="chats", paths=(str(tmp_path / "*.jsonl"),), **settings)
    corpus, _ = scan_corpus([source], progress=listener)
    return [file.row_format for file in corpus.files], listener.lines[0]


@pytest.mark.parametrize("name", ROWS)
def test_every_format_is_told_from_the_others(tmp_path, name):
    assert detected(tmp_path, [ROWS[name]] * 3) == (name, f"source 'chats': 3 rows in 1 file, format {name} (detected)")


@pytest.mark.parametrize("name", sorted(ROWS.keys() - {"bare"}))
def test_every_format_is_told_in_parquet(tmp_path, name):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([ROWS[name]]), path)
    corpus, _ = scan_corpus([SourceSpec(name="chats", paths=(str(path),))])
    assert corpus.files[0].row_format == name


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"messages": SHAREGPT}, "messages"),
        ({"conversations": OPENAI}, "conversations"),
        (SHAREGPT, "bare"),
        ({"prompt": OPENAI[:1], "completion": OPENAI[1:]}, "prompt_response"),
        ({"prompt": "Why?", "response": "Because."}, "prompt_response"),
        ({"instruction": "Why?", "response": "Because.", "prompt": "ignored", "completion": None}, "alpaca"),
    ],
)
def test_variants(tmp_path, row, name):
    assert detected(tmp_path, [row])[0] == name


def test_most_rows_decide_and_the_rest_is_said(tmp_path):
    rows = [ROWS["alpaca"], "broken {", *[ROWS["messages"]] * 8]
    name, line = detected(tmp_path, rows)
    assert name == "messages"
    assert line.endswith("format messages (detected: 8 of the first 10 rows fit)")


def test_each_file_has_its_own_format(tmp_path):
    files = [ROWS["alpaca"]] * 200, [ROWS["messages"]] * 200, ["broken {"] * 3, [], [ROWS["messages"]] * 200
    names, line = detected_in_files(tmp_path, *files)
    assert (names[0], names[1], names[2], names[4]) == ("alpaca", "messages", "messages", "messages")
    assert "formats messages in 3 files, alpaca in 1 file (detected: 75 of the first 78 rows fit)" in line


def test_no_format_lists_columns_and_needs(tmp_path):
    with pytest.raises(DataError) as raised:
        detected(tmp_path, [{"context": "c", "topic": "t"}, {"topic": "t", "prompt": {"text": "x"}}])
    message = str(raised.value)
    assert "source 'chats': no row format fits its rows. Columns found: context, topic, prompt." in message
    assert "prompt_response (prompt, completion (or response))" in message


def test_no_format_in_parquet_lists_all_columns(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"body": ["a"], "url": ["b"]}), path)
    with pytest.raises(DataError, match="Columns found: body, url"):
        scan_corpus([SourceSpec(name="chats", paths=(str(path),))])


def test_no_readable_row_shows_the_first_fault(tmp_path):
    with pytest.raises(DataError, match="none of its first 2 rows can be read; the first fault is: invalid_json: "):
        detected(tmp_path, ["{", "}"])


@pytest.mark.parametrize(
    "columns",
    [{"label": True}, {"label": False}],
    ids=["kto", "kto-bad"],
)
def test_verdicts_are_not_taken_for_examples(tmp_path, columns):
    row = {"messages": OPENAI, **columns}
    with pytest.raises(DataError, match="preference data"):
        detected(tmp_path, [row])
    assert detected(tmp_path, [row], format="messages")[0] == "messages"


def test_columns_found_are_those_of_the_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"messages": [], "talk": 1}\n')
    spec = SourceSpec(name="s", paths=(str(path),), columns={"messages": "tolk"})
    with pytest.raises(DataError, match="Columns found: messages, talk"):
        scan_corpus([spec])
