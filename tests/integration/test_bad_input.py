"""Broken input: one clear sentence, the right exit code, nothing damaged."""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from hbp_prep.manifest.parts import part_range


def rejected_rows(out: Path) -> list[tuple[str, int, str]]:
    with pa.memory_map(str(out / "rejected.arrow")) as source:
        table = pa.ipc.open_file(source).read_all()
    return [(Path(row["file"]).name, row["row"], row["reason"]) for row in table.to_pylist()]


def test_bad_rows_are_quarantined_with_file_row_and_reason(write_recipe, hbp_prep, tmp_path, tiny_corpus) -> None:
    good = (tiny_corpus / "short.jsonl").read_bytes().splitlines()[:200]
    bad = {
        3: (b'{"messages": [{"role": "user", "content": "cut', "invalid_json"),
        5: (b'{"messages": [{"role": "user", "content": "\xff"}]}', "invalid_utf8"),
        7: (b'{"messages": []}', "no_messages"),
        9: (b'{"messages": [{"role": "wizard", "content": "x"}]}', "bad_role"),
        11: (b'{"messages": [{"role": "user", "content": "only a question"}]}', "no_loss_tokens"),
        13: (b'{"messages": [{"role": "user", "content": 3}, {"role": "assistant", "content": "x"}]}', "bad_content"),
        15: (b'{"messages": [{"role": "user"}, {"role": "assistant", "content": "x"}]}', "bad_content"),
        17: (b'"a text"', "bad_row"),
        19: (b'{"other": 1}', "bad_row"),
        21: (
            b'{"messages": [{"role":"user","content":"\\udbc0"},{"role":"assistant","content":"x"}]}',
            "lone_surrogate",
        ),
        23: (b"[" * 100_000, "invalid_json"),
    }
    lines = [bad[number][0] if number in bad else line for number, line in enumerate(good)]
    data = tmp_path / "rows.jsonl"
    data.write_bytes(b"\n".join(lines))
    out = tmp_path / "out"
    recipe = write_recipe(
        sources=[{"name": "rows", "paths": str(data), "format": "messages"}], max_rejected_fraction=0.1
    )
    hbp_prep("run", recipe, "--output", out, "--workers", 1)
    assert rejected_rows(out) == [("rows.jsonl", number, reason) for number, (_, reason) in bad.items()]
    hbp_prep("verify", out, "--workers", 1)

    refused = hbp_prep(
        "run", recipe, "--output", tmp_path / "strict", "--set", "max_rejected_fraction=0.01", "--workers", 1, expect=1
    )
    assert "max_rejected_fraction" in refused.output
    assert "wizard" in refused.output
    assert not (tmp_path / "strict" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"sources": [{"name": "a", "paths": "absent.jsonl"}]}, 1, ["absent.jsonl", "a"]),
        ({"sources": [{"name": "a", "paths": "*.nothing"}]}, 1, ["*.nothing"]),
        ({"tokenizer": {"path": "no-tokenizer"}}, 1, ["no-tokenizer"]),
        ({"packing": {"groups": [{"length": 1000, "sp_degree": 3}]}}, 2, ["3", "1000"]),
        ({"packing": {"groups": [{"length": 1024}, {"length": 8192, "sp_degree": 8}]}}, 2, ["sp_degree", "8", "4"]),
        ({"packing": {"groups": [{"length": 1024}], "strategy": "bdf"}}, 2, ["'bdf'", "did you mean"]),
        ({"cluster": {"world_size": 4, "hardware": "h100"}}, 2, ["'h100'", "did you mean 'h100-80g'"]),
        ({"cluster": {"world_size": 4096, "gpus_per_node": 8}}, 1, ["too few samples", "412 samples"]),
        ({"sources": [{"name": "a", "paths": "short.jsonl", "format": "mesages"}]}, 2, ["did you mean 'messages'"]),
        ({"curriculum": {"kind": "two_phase", "first_phase_steps": 9999}}, 1, ["9999"]),
    ],
)
def test_a_recipe_that_cannot_work(changes, code, words, write_recipe, hbp_prep, tmp_path, tiny_corpus) -> None:
    if "paths" in str(changes) and "short.jsonl" in str(changes):
        changes = {"sources": [changes["sources"][0] | {"paths": str(tiny_corpus / "short.jsonl")}]}
    out = tmp_path / "out"
    result = hbp_prep("run", write_recipe(**changes), "--output", out, "--workers", 1, "--quiet", expect=code)
    for word in words:
        assert word in result.output
    assert result.output.startswith("Error: ")
    assert "Traceback" not in result.output
    assert not (out / "manifest.json").exists()


def test_a_foreign_folder_is_never_touched(write_recipe, hbp_prep, tmp_path) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.txt").write_text("precious")
    for flags in ([], ["--resume"], ["--overwrite"]):
        result = hbp_prep("run", write_recipe(), "--output", out, *flags, expect=2)
        assert "not empty and not from hbp-prep" in result.output
    assert [path.name for path in out.iterdir()] == ["chapter.txt"]
    (tmp_path / "file").touch()
    hbp_prep("run", write_recipe(), "--output", tmp_path / "file", expect=2)


def test_a_mistake_with_overwrite_leaves_the_finished_run(write_recipe, hbp_prep, tmp_path, contents) -> None:
    out = tmp_path / "out"
    hbp_prep("run", write_recipe(), "--output", out, "--workers", 1)
    before = contents(out)
    for change in ("tokenizer.path=/nowhere", "packing.strategy=none", "sources.0.paths=/nowhere.jsonl"):
        result = hbp_prep("run", tmp_path / "recipe.yaml", "--output", out, "--overwrite", "--set", change, expect=None)
        assert result.exit_code in (1, 2)
    assert contents(out) == before


@pytest.mark.parametrize("command", ["verify", "report", "inspect", "clean"])
def test_folders_that_are_no_run(command, hbp_prep, tmp_path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        result = hbp_prep(command, folder, expect=None)
        assert result.exit_code in (1, 2)
        assert str(folder) in result.output
        assert "Traceback" not in result.output


def test_broken_tokenizer_folders(write_recipe, hbp_prep, tmp_path, tiny_corpus) -> None:
    good = json.loads((tiny_corpus / "tokenizer" / "tokenizer_config.json").read_text())
    variants = {
        "no template": good | {"chat_template": None},
        "bad template": good | {"chat_template": "{% for %}"},
        "no eos": good | {"eos_token": None},
        "foreign eos": good | {"eos_token": "<|never|>"},
    }
    for name, config in variants.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tokenizer.json").write_bytes((tiny_corpus / "tokenizer" / "tokenizer.json").read_bytes())
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        recipe = write_recipe(tokenizer={"path": str(folder)})
        result = hbp_prep("run", recipe, "--output", tmp_path / "out", "--quiet", expect=None)
        assert result.exit_code in (1, 2), name
        assert result.output.startswith("Error: "), name
        assert folder.name in result.output, name
    (folder / "tokenizer.json").write_text("{}")
    result = hbp_prep("run", recipe, "--output", tmp_path / "out", "--quiet", expect=1)
    assert "tokenizer.json" in result.output


def test_a_folder_that_cannot_be_made(write_recipe, hbp_prep, tmp_path) -> None:
    (tmp_path / "file").touch()
    result = hbp_prep("run", write_recipe(), "--output", tmp_path / "file" / "out", "--quiet", expect=1)
    assert "cannot be written" in result.output


def samples_of(out: Path) -> list[dict]:
    return pa.ipc.open_file(pa.memory_map(str(out / "samples.arrow"))).read_all().to_pylist()


def test_too_long_samples_follow_the_policy(write_recipe, hbp_prep, tmp_path) -> None:
    groups = {"groups": [{"length": 512}, {"length": 2048}], "shard_tokens": 65536}
    outcomes = {}
    lost = {}
    for policy in ("drop", "truncate", "split"):
        out = tmp_path / policy
        recipe = write_recipe(packing=groups, over_length={"policy": policy}, max_rejected_fraction=1)
        shown = hbp_prep("run", recipe, "--output", out, "--workers", 1).output
        assert "Tokens that the length limits leave out" in " ".join(shown.split())
        hbp_prep("verify", out, "--workers", 1)
        totals = json.loads((out / "manifest.json").read_text())["totals"]
        outcomes[policy], lost[policy] = totals["rejected_by_reason"], totals["lost_tokens"]
    assert outcomes["drop"].keys() == {"too_long"}
    # The answers stand at the end: cutting them off leaves nothing to train on, and that is said.
    assert outcomes["truncate"] == {"no_loss_tokens": outcomes["drop"]["too_long"]}
    assert lost["truncate"] == {"truncated": 0, "no_loss_tokens": lost["drop"]["too_long"]}
    # Every long row is trained on in parts; those without any of the answer are left out and counted.
    assert outcomes["split"] == {}
    assert 0 < lost["split"]["split"] < lost["drop"]["too_long"]
    parts = [row for row in samples_of(tmp_path / "split") if row["truncated_from"] is not None]
    assert len(parts) >= outcomes["drop"]["too_long"]
    assert all(part_range(row["original_id"]) for row in parts)
    result = hbp_prep(
        "run", write_recipe(packing=groups, over_length={"policy": "raise"}), "--output", tmp_path / "r", expect=1
    )
    assert "long.jsonl" in result.output


def test_a_source_of_two_row_shapes(hbp_prep, write_recipe, tmp_path, tiny_corpus) -> None:
    source = {"name": "all", "paths": str(tiny_corpus / "*.jsonl")}
    result = hbp_prep("run", write_recipe(sources=[source]), "--output", tmp_path / "out", "--workers", 1)
    assert "messages in 1 file, prompt_response in 1 file" in " ".join(result.output.split()) or (
        "prompt_response in 1 file, messages in 1 file" in " ".join(result.output.split())
    )
    assert rejected_rows(tmp_path / "out") == []


def test_a_source_with_too_many_faults_stops_the_job_though_others_are_clean(
    hbp_prep, write_recipe, tmp_path, tiny_corpus
) -> None:
    lines = (tiny_corpus / "long.jsonl").read_text().splitlines()
    (tmp_path / "long.jsonl").write_text("\n".join([*lines, "broken", "broken"]))
    sources = [
        {"name": "short", "paths": str(tiny_corpus / "short.jsonl")},
        {"name": "long", "paths": str(tmp_path / "long.jsonl")},
    ]
    result = hbp_prep("run", write_recipe(sources=sources), "--output", tmp_path / "out", "--workers", 1, expect=1)
    assert "source 'long': 2 of 14 rows" in result.output


def test_usage_errors_have_exit_code_2(hbp_prep, write_recipe, tmp_path) -> None:
    hbp_prep("run", write_recipe(), expect=2)
    hbp_prep("run", write_recipe(), "--output", tmp_path / "o", "--resume", "--overwrite", expect=2)
    hbp_prep("nonsense", expect=2)
    hbp_prep("inspect", tmp_path, "--pack", 1, "--sample", 2, expect=2)


def test_the_schema_accepts_the_recipes(hbp_prep) -> None:
    import jsonschema

    schema = json.loads(hbp_prep("schema").output)
    recipes = list((Path(__file__).parents[2] / "pipelines").glob("*.yaml"))
    assert len(recipes) >= 2
    for path in recipes:
        jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "x"}, schema)


def test_names_that_are_not_utf8(hbp_prep, write_recipe, tmp_path, tiny_corpus) -> None:
    name = os.fsdecode(b"rows-\xff.jsonl")
    (tmp_path / name).write_bytes((tiny_corpus / "short.jsonl").read_bytes())
    recipe = write_recipe(sources=[{"name": "a", "paths": str(tmp_path / "*.jsonl")}])
    assert "is not UTF-8" in hbp_prep("run", recipe, "--output", tmp_path / "out", "--quiet", expect=1).output
    assert "is not UTF-8" in hbp_prep("run", recipe, "--output", tmp_path / name, "--quiet", expect=2).output


@pytest.mark.parametrize("workers", [1, 2])
def test_a_fast_backend_that_is_not_proven_is_refused_in_one_sentence(
    workers, write_recipe, hbp_prep, tmp_path, tiny_corpus
) -> None:
    """Without a decoder, nobody knows the tokens' bytes."""
    folder = tmp_path / "tokenizer"
    shutil.copytree(tiny_corpus / "tokenizer", folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(content | {"decoder": None}))
    recipe = write_recipe(tokenizer={"path": str(folder)})
    arguments = ("run", recipe, "--output", tmp_path / "out", "--workers", workers)
    refused = hbp_prep(*arguments, "--tokenizer-backend", "gigatoken", expect=2)
    assert "gigatoken cannot be used with this tokenizer (it is not a byte-level tokenizer)" in words(refused.output)
    done = hbp_prep(*arguments, "--resume")
    assert "with tokenizers (gigatoken is faster, but it is not a byte-level tokenizer)" in words(done.output)


def words(text: str) -> str:
    return " ".join(text.split())
