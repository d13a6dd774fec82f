"""The whole way on the tiny corpus: from files to a verified folder, again and again."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from hbp_prep.engines.local import LocalEngine
from hbp_prep.manifest.reader import ManifestReader


def read_table(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


@pytest.fixture
def prepared(tmp_path, write_recipe, hbp_prep):
    """A recipe and the folder that was prepared from it."""
    recipe, out = write_recipe(), tmp_path / "out"
    hbp_prep("run", recipe, "--output", out, "--workers", 1)
    return recipe, out


def test_a_run_gives_a_folder_that_verifies(prepared, hbp_prep, tiny_corpus) -> None:
    _, out = prepared
    assert "FAIL" not in hbp_prep("verify", out, "--workers", 1).output
    manifest = json.loads((out / "manifest.json").read_text())
    samples, rejected = read_table(out / "samples.arrow"), read_table(out / "rejected.arrow")
    num_rows = sum(len((tiny_corpus / f"{name}.jsonl").read_text().splitlines()) for name in ("short", "long"))
    assert samples.num_rows + rejected.num_rows == num_rows == manifest["totals"]["rows_read"]
    assert [group["name"] for group in manifest["groups"]] == ["1K", "8K"]
    assert manifest["metrics"]["cr"] < 1


def test_the_reader_gives_every_sample_its_own_tokens(prepared, tiny_corpus) -> None:
    """Against a plain reading of the corpus: render by hand, encode once, compare."""
    from tokenizers import Tokenizer

    _, out = prepared
    tokenizer = Tokenizer.from_file(str(tiny_corpus / "tokenizer" / "tokenizer.json"))
    rows = [json.loads(line) for line in (tiny_corpus / "short.jsonl").read_text().splitlines()]
    expected = {}
    for row in rows:
        pieces = [
            (f"<|{m['role']}|>\n", m["content"], "<|end|>\n" if m["role"] == "assistant" else "\n")
            for m in row["messages"]
        ]
        expected[row["id"]] = tokenizer.encode(
            "".join(a + b + c for a, b, c in pieces)[:-1], add_special_tokens=False
        ).ids
    samples = read_table(out / "samples.arrow")
    original_id = dict(zip(samples["sample_id"].to_pylist(), samples["original_id"].to_pylist(), strict=True))

    reader, seen = ManifestReader(out), set()
    for step in range(reader.num_steps):
        for micro_step in reader.micro_steps(step):
            for dp_rank in range(micro_step.dp_size):
                pack = reader.pack(step, micro_step.micro_step, dp_rank)
                for number, sample_id in enumerate(pack.sample_ids.tolist()):
                    start, stop = pack.cu_seqlens[number : number + 2]
                    assert pack.position_ids[start:stop].tolist() == list(range(stop - start))
                    assert not pack.loss_mask[start]
                    assert sample_id not in seen
                    seen.add(sample_id)
                    if (name := original_id[sample_id]) in expected:
                        assert pack.input_ids[start:stop].tolist() == expected[name]
    assert len(seen) == samples.num_rows


def test_a_second_run_does_nothing_and_says_so(prepared, hbp_prep, contents) -> None:
    recipe, out = prepared
    before = contents(out)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert "nothing to do" in hbp_prep("run", recipe, "--output", out).output
    assert json.loads(hbp_prep("run", recipe, "--output", out, "--json", "--quiet").output)["nothing_to_do"]
    assert contents(out) == before
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == times


def test_the_resolved_recipe_gives_the_same_bytes(prepared, hbp_prep, contents, tmp_path) -> None:
    _, out = prepared
    hbp_prep("run", out / "resolved.yaml", "--output", tmp_path / "again", "--workers", 1)
    assert contents(tmp_path / "again") == contents(out)


def test_any_number_of_workers_gives_the_same_bytes(prepared, hbp_prep, contents, tmp_path, monkeypatch) -> None:
    recipe, out = prepared
    monkeypatch.setattr("hbp_prep.corpus.scan.UNIT_BYTES", 1 << 22)
    hbp_prep("run", recipe, "--output", tmp_path / "again", "--workers", 3)
    assert contents(tmp_path / "again") == contents(out)


def test_a_changed_recipe_is_refused_without_a_word_to_do_so(prepared, hbp_prep, contents) -> None:
    recipe, out = prepared
    before = contents(out)
    result = hbp_prep("run", recipe, "--output", out, "--set", "packing.strategy=isf", expect=2)
    assert "packing.strategy: 'bfs' -> 'isf'" in result.output
    assert "--resume" in result.output
    assert contents(out) == before


def test_resume_redoes_only_what_a_change_touches(prepared, hbp_prep, contents, tmp_path) -> None:
    recipe, out = prepared
    change = ("--set", "packing.strategy=isf")
    result = hbp_prep("run", recipe, "--output", out, *change, "--resume", "--json", "--quiet", "--workers", 1)
    redone = {stage["name"]: stage["redone"] for stage in json.loads(result.output)["stages"]}
    assert redone == {"corpus": True, "tokenization": False, "planning": True, "sharding": True, "report": True}
    hbp_prep("run", recipe, "--output", tmp_path / "fresh", *change, "--workers", 1)
    assert contents(out) == contents(tmp_path / "fresh")
    hbp_prep("verify", out, "--workers", 1)


def test_overwrite_starts_anew_and_leaves_foreign_files(prepared, hbp_prep, contents, tmp_path) -> None:
    recipe, out = prepared
    (out / "notes.txt").write_text("mine")
    hbp_prep("run", recipe, "--output", out, "--set", "seed=9", "--overwrite", "--workers", 1)
    hbp_prep("run", recipe, "--output", tmp_path / "fresh", "--set", "seed=9", "--workers", 1)
    assert contents(out) == contents(tmp_path / "fresh") | {"notes.txt": b"mine"}


def test_a_cleaned_folder_is_still_finished(prepared, hbp_prep, contents) -> None:
    recipe, out = prepared
    before = contents(out)
    hbp_prep("clean", out)
    assert not (out / ".work").exists()
    hbp_prep("verify", out, "--workers", 1)
    assert "nothing to do" in hbp_prep("run", recipe, "--output", out).output
    assert contents(out) == before


def test_changed_data_is_noticed(write_recipe, hbp_prep, tmp_path, tiny_corpus) -> None:
    data = tmp_path / "rows.jsonl"
    lines = (tiny_corpus / "short.jsonl").read_text().splitlines(keepends=True)
    data.write_text("".join(lines[:100]))
    recipe = write_recipe(sources=[{"name": "rows", "paths": str(data)}])
    out = tmp_path / "out"
    hbp_prep("run", recipe, "--output", out, "--workers", 1)
    data.write_text("".join(lines[100:200]))
    assert "sources.rows.files" in hbp_prep("run", recipe, "--output", out, expect=2).output
    hbp_prep("run", recipe, "--output", out, "--resume", "--workers", 1)
    hbp_prep("verify", out, "--workers", 1)
    hbp_prep("run", recipe, "--output", tmp_path / "fresh", "--workers", 1)
    assert (out / "manifest.json").read_bytes() == (tmp_path / "fresh" / "manifest.json").read_bytes()


def test_weights_and_limits(write_recipe, hbp_prep, tmp_path, tiny_corpus) -> None:
    sources = [
        {"name": "half", "paths": str(tiny_corpus / "short.jsonl"), "weight": 0.5},
        {"name": "twice", "paths": str(tiny_corpus / "long.jsonl"), "weight": 2.0, "limit": 20},
    ]
    out = tmp_path / "out"
    hbp_prep("run", write_recipe(sources=sources), "--output", out, "--workers", 1)
    hbp_prep("verify", out, "--workers", 1)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["totals"]["by_source"]["half"]["num_samples"] == 200
    assert manifest["totals"]["by_source"]["twice"]["num_samples"] == 20
    assert manifest["totals"]["rejected_by_reason"] == {"not_selected": 200}


def test_epochs(write_recipe, hbp_prep, tmp_path) -> None:
    out = tmp_path / "out"
    hbp_prep("run", write_recipe(epochs=3), "--output", out, "--workers", 1)
    hbp_prep("verify", out, "--workers", 1)
    reader = ManifestReader(out)
    epochs = [micro_step.epoch for step in range(reader.num_steps) for micro_step in reader.micro_steps(step)]
    assert sorted(set(epochs)) == [0, 1, 2]
    assert epochs == sorted(epochs)


def test_two_runs_at_once_on_one_folder(prepared, hbp_prep) -> None:
    from hbp_prep.pipeline.folder import OutputFolder

    recipe, out = prepared
    with OutputFolder(out).lock():
        assert "in use by another run" in hbp_prep("run", recipe, "--output", out, "--resume", expect=2).output


def test_the_default_engine_uses_all_cores() -> None:
    assert LocalEngine().num_workers >= 1
