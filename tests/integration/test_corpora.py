"""One recipe of every kind of file and row: each row is a sample or is listed, and the bytes are always the same."""

import gzip
import json
from collections import Counter
from pathlib import Path

import datasets
import fsspec
import pyarrow as pa
import pytest

from hbp_prep.manifest.reader import ManifestReader

pytestmark = pytest.mark.filterwarnings("default")  # of s3fs, aiobotocore and moto, none of them ours


def chat(number: int, **more: object) -> dict:
    return {
        "messages": [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a {number}"}]
    } | more


def lines(rows: list[object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def recipe(tmp_path: Path, write_recipe, s3: None) -> Path:
    """Nine sources; comments say what becomes of their rows with ``deduplicate``."""
    folder = tmp_path / "corpora"
    folder.mkdir()
    sharegpt = [
        {"conversations": [{"from": "human", "value": f"h{n}"}, {"from": "gpt", "value": "yes"}]} for n in range(30)
    ]
    (folder / "sharegpt.jsonl.gz").write_bytes(gzip.compress(lines([*sharegpt, sharegpt[0]])))  # 30, 1 duplicate
    scored = [chat(number, score=number % 4) for number in range(40)]
    (folder / "scored.jsonl.zst").write_bytes(zstd(lines([*scored, chat(99, score="x")])))  # 20, 20 filtered, 1 bad
    (folder / "array.json").write_text(json.dumps([chat(number) for number in range(100, 110)] + [{"messages": []}]))
    table = pa.Table.from_pylist([{"prompt": f"p{number}", "response": "r"} for number in range(12)])
    with pa.ipc.new_file(folder / "pairs.arrow", table.schema) as writer:
        writer.write_table(table)
    datasets.Dataset.from_list([{"question": f"q{n}?", "answer": "r"} for n in range(8)]).save_to_disk(folder / "saved")
    tree = {"role": "prompter", "text": "Why?", "replies": [{"role": "assistant", "text": "So.", "replies": []}]}
    (folder / "trees.jsonl").write_bytes(lines([{"message_tree_id": "t", "prompt": tree}]))
    (folder / "documents.jsonl").write_bytes(
        lines([{"text": f"A document, the {number}th." * 9} for number in range(5)])
    )
    preferences = [{"prompt": f"w{number}", "chosen": "good", "rejected": "bad"} for number in range(6)]
    (folder / "renamed.jsonl").write_bytes(lines([{"talk": [{"who": "A", "says": "x"}, {"who": "B", "says": "y"}]}]))
    store = fsspec.filesystem("s3")
    if not store.exists("mixture"):
        store.mkdir("mixture")
    store.pipe("mixture/pairs.jsonl", lines(preferences))
    sources = [
        {"name": "sharegpt", "paths": str(folder / "sharegpt.jsonl.gz")},
        {"name": "scored", "paths": str(folder / "scored.jsonl.zst"), "where": "score >= 2"},
        {"name": "array", "paths": str(folder / "array.json"), "weight": 2},
        {"name": "pairs", "paths": str(folder / "*.arrow"), "weight": 0.5},
        {"name": "saved", "paths": str(folder / "saved"), "limit": 5},
        {"name": "trees", "paths": str(folder / "trees.jsonl")},
        {"name": "documents", "paths": str(folder / "documents.jsonl")},
        {"name": "preferences", "paths": "s3://mixture/*.jsonl"},
        {
            "name": "renamed",
            "paths": str(folder / "renamed.jsonl"),
            "columns": {"messages": "talk", "role": "who", "content": "says"},
            "roles": {"A": "user", "B": "assistant"},
        },
    ]
    return write_recipe(sources=sources, deduplicate=True, max_rejected_fraction=0.5)


def test_every_row_is_a_sample_or_is_listed(recipe: Path, hbp_prep, tmp_path: Path) -> None:
    printed = hbp_prep("run", recipe, "--output", tmp_path / "out", "--workers", 1).output
    hbp_prep("verify", tmp_path / "out")
    reader = ManifestReader(tmp_path / "out")
    samples = pa.ipc.open_file(tmp_path / "out" / "samples.arrow").read_all().to_pylist()
    rejected = pa.ipc.open_file(tmp_path / "out" / "rejected.arrow").read_all().to_pylist()
    rows = Counter({"sharegpt": 31, "scored": 41, "array": 11, "pairs": 12, "saved": 8, "trees": 1})
    rows += Counter({"documents": 5, "preferences": 6, "renamed": 1})
    used = {(row["source"], row["file"], row["row"]) for row in samples}
    listed = [(row["source"], row["file"], row["row"]) for row in rejected]
    assert len(listed) == len(set(listed))
    assert not used & set(listed)
    assert Counter(source for source, *_ in [*used, *listed]) == rows
    assert Counter(row["source"] for row in samples) == {
        "sharegpt": 30,
        "scored": 20,
        "array": 20,
        "pairs": 6,
        "saved": 5,
        "trees": 1,
        "documents": 5,
        "preferences": 6,
        "renamed": 1,
    }
    reasons = Counter((row["source"], row["reason"]) for row in rejected)
    assert reasons == {
        ("sharegpt", "duplicate"): 1,
        ("scored", "not_selected"): 20,
        ("scored", "bad_row"): 1,
        ("array", "no_messages"): 1,
        ("pairs", "not_selected"): 6,
        ("saved", "not_selected"): 3,
    }
    assert {row["file"] for row in samples if row["source"] == "preferences"} == {"s3://mixture/pairs.jsonl"}
    assert "of 31 rows 1 duplicates are left out" in " ".join(printed.split())
    assert "format preference (of every pair, the chosen answer)" in " ".join(printed.split())
    assert reader.manifest.totals.num_samples == len(samples)


def test_always_the_same_bytes(recipe: Path, hbp_prep, contents, tmp_path: Path) -> None:
    """For one worker and two, either backend, after a break and for a second time."""
    hbp_prep("run", recipe, "--output", tmp_path / "one", "--workers", 1, "--tokenizer-backend", "tokenizers")
    expected = contents(tmp_path / "one")
    hbp_prep("run", recipe, "--output", tmp_path / "two", "--workers", 2)
    assert without_names(contents(tmp_path / "two")) == without_names(expected)
    (tmp_path / "two" / "manifest.json").unlink()
    (tmp_path / "two" / "samples.arrow").unlink()
    hbp_prep("run", recipe, "--output", tmp_path / "two", "--workers", 2, "--resume")
    assert without_names(contents(tmp_path / "two")) == without_names(expected)
    assert "is finished" in hbp_prep("run", recipe, "--output", tmp_path / "two").output


def without_names(files: dict[str, bytes]) -> dict[str, bytes]:
    """All files but those that say how they were made."""
    return {name: data for name, data in files.items() if name != "resolved.yaml" and not name.startswith("report/")}


def test_lengths_alone_are_planned_too(recipe: Path, hbp_prep, tmp_path: Path) -> None:
    planned = json.loads(hbp_prep("plan", recipe, "--json").stdout)
    hbp_prep("run", recipe, "--output", tmp_path / "out", "--workers", 1)
    samples = pa.ipc.open_file(tmp_path / "out" / "samples.arrow").read_all()
    assert planned["num_samples"] == len(samples)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"where": "sum(score) > 1"}, "does not judge each row by itself"),
        ({"where": "score >"}, "is no expression that polars reads"),
        ({"where": "nothing > 1"}, "no row has a column 'nothing'"),
        ({"dataset": "team/set"}, "a source needs paths or a dataset, and only one of them"),
        ({"subset": "x"}, "subset goes with dataset"),
        ({"split": "train"}, "only datasets have splits"),
        ({"roles": {"A": "user2"}}, "did you mean 'user'"),
        ({"columns": {"mesages": "x"}}, "did you mean 'messages'"),
    ],
)
def test_settings_that_cannot_be(write_recipe, hbp_prep, tmp_path: Path, change: dict, what: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines([chat(number, score=number) for number in range(9)]))
    recipe = write_recipe(sources=[{"name": "s", "paths": str(tmp_path / "a.jsonl")} | change])
    result = hbp_prep("run", recipe, "--output", tmp_path / "out", expect=2)
    assert what in " ".join(result.output.split())
