import json
import os
import tracemalloc
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hbp_prep.corpus import parquet
from hbp_prep.corpus import scan as scan_module
from hbp_prep.corpus.scan import UNIT_BYTES, FileScan, scan_corpus, scan_file
from hbp_prep.corpus.types import Corpus, SourceSpec
from hbp_prep.engines.local import LocalEngine
from hbp_prep.errors import ConfigError, DataError
from hbp_prep.progress import NoProgress

CHAT = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]


def write_jsonl(path: Path, num_rows: int) -> str:
    path.write_text("".join(json.dumps({"id": number, "messages": CHAT}) + "\n" for number in range(num_rows)))
    return str(path)


class Listener(NoProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.num_done = 0
        self.total: int | None = None

    def start(self, label: str, total: int | None, unit: str) -> None:
        self.total = total

    def advance(self, amount: int) -> None:
        self.num_done += amount

    def say(self, message: str) -> None:
        self.lines.append(message)


def source(*paths: str, **settings) -> SourceSpec:
    return SourceSpec(name="chats", paths=paths, **settings)


def test_files_rows_units_and_ordinals_follow_the_order_of_sources(tmp_path):
    paths = [write_jsonl(tmp_path / f"part-{number}.jsonl", num_rows) for number, num_rows in enumerate([3, 0, 5])]
    other = write_jsonl(tmp_path / "other.jsonl", 2)
    corpus, scans = scan_corpus(
        [source(str(tmp_path / "part-*.jsonl")), SourceSpec(name="other", paths=(other,))], unit_bytes=150
    )
    assert [file.path for file in corpus.files] == [*paths, other]
    assert [scan.path for scan in scans] == [*paths, other]
    assert [file.num_rows for file in corpus.files] == [3, 0, 5, 2]
    assert [file.source for file in corpus.files] == [0, 0, 0, 1]
    assert corpus.num_rows_of_source(0) == 8
    assert [unit.index for unit in corpus.units] == list(range(len(corpus.units)))
    assert [(unit.file, unit.first_row, unit.first_ordinal, unit.num_rows) for unit in corpus.units] == [
        (0, 0, 0, 2),
        (0, 2, 2, 1),
        (2, 0, 3, 2),
        (2, 2, 5, 2),
        (2, 4, 7, 1),
        (3, 0, 0, 2),
    ]


def test_checksum_is_of_all_bytes(tmp_path):
    for name, content in [("a.jsonl", b"\xef\xbb\xbf\n{}\n  "), ("b.json", b" \n[1, 2] x"), ("c.jsonl", b"")]:
        path = tmp_path / name
        path.write_bytes(content)
        assert scan_file(str(path)).sha256 == sha256(content).hexdigest()


def test_json_file_format_is_told_by_its_first_byte(tmp_path):
    found = {}
    for name, content in [
        ("array.json", b"\xef\xbb\xbf \n [ {}, {} ]"),
        ("lines.json", b"{}\n{}\n{}"),
        ("blank.json", b" \n "),
        ("lists.jsonl", b"[1]\n[2]"),
        ("far.json", b" " * 600_000 + b"[1,2]"),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        scan = scan_file(str(path))
        found[name] = (scan.file_format, scan.num_rows)
    assert found == {
        "array.json": ("json", 2),
        "lines.json": ("jsonl", 3),
        "blank.json": ("jsonl", 0),
        "lists.jsonl": ("jsonl", 2),
        "far.json": ("json", 2),
    }


def test_units_are_cut_at_the_first_row_past_four_mebibytes(tmp_path):
    path = tmp_path / "big.jsonl"
    line = b'"' + b"x" * 99_997 + b'"\n'
    path.write_bytes(line * 100)
    starts = [start for start, *_ in scan_file(str(path)).units]
    assert starts == [0, 4_200_000, 8_400_000]
    assert starts[1] - len(line) < UNIT_BYTES <= starts[1]


def test_scan_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "sparse.jsonl"
    with open(path, "wb") as handle:
        handle.truncate(256 << 20)
    scan_file(write_jsonl(tmp_path / "warm-up.jsonl", 1))
    tracemalloc.start()
    try:
        scan = scan_file(str(path))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert scan.num_rows == 1
    assert peak_bytes < 8 << 20


def test_parquet_units_stay_inside_row_groups_and_cover_all_rows(tmp_path):
    path = tmp_path / "rows.parquet"
    table = pa.table({"prompt": ["p" * 50] * 1000, "completion": [str(number) * 20 for number in range(1000)]})
    pq.write_table(table, path, row_group_size=300, use_dictionary=False)
    units = scan_file(str(path), unit_bytes=1000).units
    groups = [(0, 300), (300, 600), (600, 900), (900, 1000)]
    assert [start for start, *_ in units] == [0, *(stop for _, stop, *_ in units[:-1])]
    assert units[-1][1] == 1000
    assert all(any(low <= start < stop <= high for low, high in groups) for start, stop, *_ in units)
    assert all(first_row == start and num_rows == stop - start for start, stop, first_row, num_rows in units)
    assert len(units) == 3 * 16 + 13  # the last row group has under 13,000 bytes

    assert [unit[:2] for unit in scan_file(str(path)).units] == groups


def test_rows_of_a_parquet_file_that_states_no_sizes_are_not_lost(monkeypatch):
    group = SimpleNamespace(total_byte_size=0, num_rows=7)
    file = SimpleNamespace(metadata=SimpleNamespace(num_row_groups=2, row_group=lambda index: group))
    monkeypatch.setattr(parquet, "_open", lambda path: file)
    assert parquet.row_ranges("rows.parquet", UNIT_BYTES) == [(0, 7), (7, 14)]


@pytest.mark.parametrize("content", [b"", b"PAR1 not really PAR1", b'{"messages": []}\n'])
def test_file_that_is_no_parquet_is_named(tmp_path, content):
    path = tmp_path / "broken.parquet"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.parquet is not a valid Parquet file"):
        scan_corpus([source(str(path))])


def test_scan_survives_json(tmp_path):
    scan = scan_file(write_jsonl(tmp_path / "a.jsonl", 9), unit_bytes=200)
    assert FileScan.from_dict(json.loads(json.dumps(scan.to_dict()))) == scan
    with pytest.raises(DataError, match="another version"):
        FileScan.from_dict({"path": "a"})


def test_previous_scan_is_reused_only_while_the_signature_holds(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", 9)
    listener = Listener()
    _, [scan] = scan_corpus([source(path)])
    marked = replace(scan, sha256="reused")
    assert scan_corpus([source(path)], previous=[marked], progress=listener)[1] == [marked]
    assert listener.total == 0
    assert scan_corpus([source(path)], previous=[marked], unit_bytes=100)[1][0].sha256 == scan.sha256
    os.utime(path, ns=(1, 1))
    assert scan_corpus([source(path)], previous=[marked])[1][0].sha256 == scan.sha256


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = write_jsonl(tmp_path / "a.jsonl", 9)
    original = scan_module._scan_text

    def scan_and_append(*arguments):
        with open(path, "a") as handle:
            handle.write("{}\n")
        return original(*arguments)

    monkeypatch.setattr(scan_module, "_scan_text", scan_and_append)
    with pytest.raises(DataError, match=r"a\.jsonl changed while it was read"):
        scan_file(path)


def test_one_file_in_two_sources_is_read_once(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", 4)
    listener = Listener()
    corpus, scans = scan_corpus(
        [source(path), SourceSpec(name="again", paths=(path,), format="messages")], progress=listener
    )
    assert len(scans) == 1
    assert listener.num_done == listener.total == os.path.getsize(path)
    assert [file.source for file in corpus.files] == [0, 1]
    assert [unit.first_ordinal for unit in corpus.units] == [0, 0]
    assert listener.lines == [
        "source 'chats': 4 rows in 1 file, format messages (detected)",
        "source 'again': 4 rows in 1 file, format messages",
    ]


def test_workers_change_nothing(tmp_path):
    for number in range(6):
        write_jsonl(tmp_path / f"{number}.jsonl", 40 * (6 - number))
    sources = [source(str(tmp_path / "*.jsonl"))]
    alone: tuple[Corpus, list[FileScan]] = scan_corpus(sources, unit_bytes=500)
    assert scan_corpus(sources, unit_bytes=500, map_tasks=LocalEngine(2).map) == alone


def test_source_without_rows_is_refused(tmp_path):
    path = write_jsonl(tmp_path / "empty.jsonl", 0)
    with pytest.raises(DataError, match=r"source 'chats' has no rows: every file is empty \(.*empty\.jsonl\)"):
        scan_corpus([source(path)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "mesages"}, "unknown row format 'mesages'; did you mean 'messages'"),
        ({"format": "messages", "columns": {"mesages": "chat"}}, "reads no column 'mesages'; did you mean 'messages'"),
        ({"format": "bare", "columns": {"messages": "chat"}}, "format 'bare' reads no column 'messages'"),
        ({"columns": {"instrution": "q"}}, "did you mean 'instruction'"),
    ],
)
def test_wrong_settings_are_refused_before_reading(tmp_path, settings, message):
    with pytest.raises(ConfigError, match=message):
        scan_corpus([source(str(tmp_path / "never-read.jsonl"), **settings)])
