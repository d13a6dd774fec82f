"""Compressed and remote files: the same corpus as their plain content, and one sentence for whatever is wrong."""

import gzip
import json
import os
import shutil
from pathlib import Path
from uuid import uuid4

import fsspec
import pyarrow as pa
import pytest

from hbp_prep.corpus import spool as spool_module
from hbp_prep.corpus.read import read_unit
from hbp_prep.corpus.scan import scan_corpus
from hbp_prep.corpus.spool import spool_path
from hbp_prep.corpus.types import SourceSpec
from hbp_prep.errors import ConfigError, DataError

ROWS = [
    {"id": str(number), "messages": [{"role": "user", "content": "q" * number}, {"role": "assistant", "content": "a"}]}
    for number in range(300)
]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
ARRAY = json.dumps(ROWS).encode()


def gz(data: bytes) -> bytes:
    """Without the time of day, which would differ from one process that collects tests to another."""
    return gzip.compress(data, mtime=0)


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def scan(path: str, spool: Path | None, **settings):
    return scan_corpus([SourceSpec(name="s", paths=(path,))], spool=spool, unit_bytes=4096, **settings)


def read(corpus) -> list:
    return [item for unit in corpus.units for item in read_unit(corpus.files[0], corpus.sources[0], unit)]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("rows.jsonl.gz", gz(LINES)),
        ("rows.jsonl.gz", gz(LINES[:5000]) + gz(LINES[5000:])),  # two members
        ("rows.ndjson.gz", gz(LINES)),
        ("rows.JSONL.GZ", gz(LINES)),
        ("rows.jsonl.zst", zstd(LINES)),
        ("rows.jsonl.zst", zstd(LINES[:7]) + zstd(LINES[7:])),  # two frames
        ("rows.json.gz", gz(ARRAY)),
        ("rows.json.zst", zstd(ARRAY)),
    ],
)
def test_compressed_files_are_cut_and_read_as_their_content(tmp_path, name, data):
    plain = tmp_path / ("rows.json" if ".json." in name else "rows.jsonl")
    plain.write_bytes(ARRAY if ".json." in name else LINES)
    (tmp_path / name).write_bytes(data)
    expected, _ = scan(str(plain), None)
    corpus, _ = scan(str(tmp_path / name), tmp_path / "spool")
    assert len(corpus.units) > 5
    assert corpus.units == expected.units
    assert corpus.files[0].sha256 == expected.files[0].sha256
    assert read(corpus) == read(expected)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (gz(LINES)[:-9], "Truncated"),
        (gz(LINES)[:40], "Truncated"),
        (gz(LINES)[:-6] + b"\0\0" + gz(LINES)[-4:], "incorrect data check"),
        (gz(LINES) + b"junk", "incorrect header"),
        (b"no gzip at all", "incorrect header"),
    ],
    ids=["end cut off", "nearly all cut off", "checksum", "junk behind it", "no gzip"],
)
def test_damaged_gzip_is_one_sentence_and_leaves_nothing(tmp_path, data, what):
    (tmp_path / "rows.jsonl.gz").write_bytes(data)
    with pytest.raises(DataError, match=what) as raised:
        scan(str(tmp_path / "rows.jsonl.gz"), tmp_path / "spool")
    assert "rows.jsonl.gz: cannot be read" in str(raised.value)
    assert not list((tmp_path / "spool").iterdir())


def test_a_decompression_bomb_is_refused_before_it_fills_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(spool_module, "_ALWAYS_ALLOWED_BYTES", 1 << 20)
    (tmp_path / "bomb.jsonl.gz").write_bytes(gz(bytes(32 << 20)))
    with pytest.raises(DataError, match="expands to more than 200 times its size"):
        scan(str(tmp_path / "bomb.jsonl.gz"), tmp_path / "spool")
    assert not list((tmp_path / "spool").iterdir())


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "rows.jsonl.gz").write_bytes(gz(LINES))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=1000))
    with pytest.raises(DataError, match="does not fit on the disk"):
        scan(str(tmp_path / "rows.jsonl.gz"), tmp_path / "spool")


def test_the_spool_is_filled_once_and_again_when_the_file_changes(tmp_path, monkeypatch):
    path, spool = tmp_path / "rows.jsonl.gz", tmp_path / "spool"
    path.write_bytes(gz(LINES))
    fetched = []
    real = spool_module.fetch
    monkeypatch.setattr("hbp_prep.corpus.scan.fetch", lambda path, folder: fetched.append(path) or real(path, folder))
    first, scans = scan(str(path), spool)
    assert scan(str(path), spool)[0] == first  # known by its note in the spool
    assert scan(str(path), spool, previous=scans)[0] == first
    assert len(fetched) == 1
    expected = read(first)
    spool_path(spool, str(path)).write_bytes(b"{}\n")  # damaged in the spool
    assert read(scan(str(path), spool)[0]) == expected
    assert len(fetched) == 2
    path.write_bytes(gz(LINES[: len(LINES) // 2]))
    os.utime(path, ns=(1, 1))
    assert scan(str(path), spool)[0].files[0].sha256 != first.files[0].sha256
    assert len(fetched) == 3


def test_a_compressed_file_without_a_spool_is_refused(tmp_path):
    (tmp_path / "rows.jsonl.gz").write_bytes(gz(LINES))
    with pytest.raises(ConfigError, match="needs a folder"):
        scan(str(tmp_path / "rows.jsonl.gz"), None)


def test_parquet_is_not_read_compressed(tmp_path):
    (tmp_path / "rows.parquet.gz").write_bytes(b"")
    with pytest.raises(ConfigError, match="only JSON files are read compressed"):
        scan(str(tmp_path / "rows.parquet.gz"), tmp_path / "spool")


@pytest.fixture
def memory():
    folder = f"memory://{uuid4().hex}"
    file_system = fsspec.filesystem("memory")

    def write(name: str, data: bytes) -> str:
        file_system.pipe(f"{folder}/{name}", data)
        return f"{folder}/{name}"

    yield write
    file_system.rm(folder, recursive=True)


@pytest.mark.parametrize(("name", "data"), [("rows.jsonl", LINES), ("rows.jsonl.gz", gz(LINES))])
def test_files_in_memory(tmp_path, memory, name, data):
    (tmp_path / "rows.jsonl").write_bytes(LINES)
    expected, _ = scan(str(tmp_path / "rows.jsonl"), None)
    address = memory(name, data)
    corpus, _ = scan(address, tmp_path / "spool")
    assert corpus.files[0].path == address
    assert read(corpus) == read(expected)


def test_remote_globs_are_sorted_and_changes_are_seen(tmp_path, memory):
    for name in ("b", "a", "c"):
        address = memory(f"{name}.jsonl", LINES)
    pattern = address.rsplit("/", 1)[0] + "/*.jsonl"
    corpus, _ = scan(pattern, tmp_path / "spool")
    assert [file.path[-7:] for file in corpus.files] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    memory("b.jsonl", LINES[: LINES.index(b"\n") + 1])
    assert [file.num_rows for file in scan(pattern, tmp_path / "spool")[0].files] == [300, 1, 300]


@pytest.mark.parametrize(
    ("address", "error", "what"),
    [
        ("memory://nowhere/rows.jsonl", DataError, "matches no file"),
        ("memory://nowhere/*.jsonl", DataError, "matches no file"),
        ("nosuch://a/rows.jsonl", ConfigError, "no usable address"),
    ],
)
def test_bad_addresses(tmp_path, address, error, what):
    with pytest.raises(error, match=what):
        scan(address, tmp_path / "spool")


@pytest.mark.filterwarnings("default")  # of s3fs, aiobotocore and moto, none of them ours
def test_s3(tmp_path, s3):
    file_system = fsspec.filesystem("s3")
    file_system.mkdir("corpora")
    file_system.pipe("corpora/b/rows.jsonl.gz", gz(LINES))
    file_system.pipe("corpora/b/other.jsonl", LINES)
    (tmp_path / "rows.jsonl").write_bytes(LINES)
    expected = read(scan(str(tmp_path / "rows.jsonl"), None)[0])
    corpus, scans = scan("s3://corpora/b/*", tmp_path / "spool")
    assert [file.path for file in corpus.files] == ["s3://corpora/b/other.jsonl", "s3://corpora/b/rows.jsonl.gz"]
    assert read(scan("s3://corpora/b/rows.jsonl.gz", tmp_path / "spool")[0]) == expected
    assert "ETag" in scans[0].signature.version
    file_system.pipe("corpora/b/other.jsonl", LINES[:-1].replace(b"qq", b"pp"))
    assert scan("s3://corpora/b/*", tmp_path / "spool")[1][0].sha256 != scans[0].sha256
    with pytest.raises(DataError, match="matches no file"):
        scan("s3://corpora/none/*.jsonl", tmp_path / "spool")
    with pytest.raises(DataError):
        scan("s3://no-such-bucket/rows.jsonl", tmp_path / "spool")
