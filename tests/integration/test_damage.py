"""Damage between two runs: what --resume finds broken it makes again, and what it may not touch it leaves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

QUIET = ("--workers", 1, "--quiet")
CHANGE = ("--set", "packing.strategy=bfd")


@pytest.fixture
def prepared(tmp_path, write_recipe, hbp_prep):
    recipe, out = write_recipe(), tmp_path / "out"
    hbp_prep("run", recipe, "--output", out, *QUIET)
    return recipe, out


def flip(path: Path, position: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * position)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "name",
    [
        ".work/tokens/unit-000000.arrow",
        ".work/sample_table.arrow",
        ".work/rejected.arrow",
        ".work/plan/packs.arrow",
        ".work/plan/plan.json",
        ".work/scans.json",
        "shards/1K/part-00000.arrow",
        ".work/shards/1K-part-00000.json",
    ],
)
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
@pytest.mark.parametrize("changed", [True, False])
def test_resume_mends_what_is_damaged(name, damage, changed, prepared, hbp_prep, contents, tmp_path) -> None:
    recipe, out = prepared
    path = out / name
    if damage == "flip":
        flip(path)
    elif damage == "truncate":
        path.write_bytes(path.read_bytes()[:60])
    else:
        path.unlink()
    if not changed:
        (out / "manifest.json").unlink()  # as if the run had been killed before its end
    options = CHANGE if changed else ()
    hbp_prep("run", recipe, "--output", out, "--resume", *options, *QUIET)
    hbp_prep("run", recipe, "--output", tmp_path / "fresh", *options, *QUIET)
    assert contents(out) == contents(tmp_path / "fresh")


@pytest.mark.parametrize(
    "name", [".work/sample_table.arrow", ".work/plan/packs.arrow", ".work/tokens/unit-000000.arrow"]
)
def test_resume_mends_a_finished_folder_that_is_damaged_in_two_places(name, prepared, hbp_prep, contents) -> None:
    recipe, out = prepared
    before = contents(out)
    flip(out / name)
    (out / "report" / "index.html").unlink()
    hbp_prep("run", recipe, "--output", out, "--resume", *QUIET)
    assert contents(out) == before


@pytest.mark.parametrize(
    "name", ["shards/1K/part-00000.arrow", "samples.arrow", "report/metrics.json", "report/index.html", "resolved.yaml"]
)
def test_a_finished_folder_with_a_file_missing_is_not_called_finished(name, prepared, hbp_prep, contents) -> None:
    recipe, out = prepared
    before = contents(out)
    (out / name).unlink()
    assert "--resume" in hbp_prep("run", recipe, "--output", out, *QUIET, expect=2).output
    hbp_prep("run", recipe, "--output", out, "--resume", *QUIET)
    assert contents(out) == before


def test_sources_in_another_order_are_another_run(prepared, hbp_prep, contents, write_recipe, tmp_path) -> None:
    recipe, out = prepared
    sources = yaml.safe_load(recipe.read_text())["sources"]
    swapped = write_recipe(sources=sources[::-1])
    assert "sources" in hbp_prep("run", swapped, "--output", out, *QUIET, expect=2).output
    hbp_prep("run", swapped, "--output", out, "--resume", *CHANGE, *QUIET)
    hbp_prep("run", swapped, "--output", tmp_path / "fresh", *CHANGE, *QUIET)
    assert contents(out) == contents(tmp_path / "fresh")


def test_one_file_in_two_sources_of_which_one_changes_its_format(hbp_prep, contents, write_recipe, tmp_path) -> None:
    data = tmp_path / "rows.jsonl"
    chat = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": "an answer"}]
    row = json.dumps({"messages": chat, "prompt": "else", "response": "entirely"})
    data.write_text("\n".join([row] * 50))
    sources = [{"name": name, "paths": str(data), "format": "messages"} for name in ("a", "b")]
    recipe, out = write_recipe(sources=sources, curriculum={"kind": "none"}), tmp_path / "out"
    change = ("--set", "sources.0.format=prompt_response")
    hbp_prep("run", recipe, "--output", out, *QUIET)
    hbp_prep("run", recipe, "--output", out, "--resume", *change, *QUIET)
    hbp_prep("run", recipe, "--output", tmp_path / "fresh", *change, *QUIET)
    assert contents(out) == contents(tmp_path / "fresh")


def test_a_stricter_limit_of_rejected_rows_holds_on_resume_too(hbp_prep, contents, write_recipe, tmp_path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "a question", "response": "an answer"}\n' * 60 + "broken\n" * 20)
    recipe = write_recipe(sources=[{"name": "a", "paths": str(data)}], max_rejected_fraction=1)
    out = tmp_path / "out"
    hbp_prep("run", recipe, "--output", out, *QUIET)
    before = contents(out)
    for key in ("max_rejected_fraction=0", "over_length.min_tokens=1000000", "cluster.gpus_per_node=99999999999"):
        hbp_prep("run", recipe, "--output", out, "--resume", "--set", key, *QUIET, expect=None)
        result = hbp_prep("run", recipe, "--output", tmp_path / "fresh", "--set", key, *QUIET, expect=None)
        assert result.exit_code in (1, 2)
        assert contents(out) == before, key


def test_folders_of_others_are_foreign_though_they_have_a_manifest(hbp_prep, write_recipe, tmp_path) -> None:
    out = tmp_path / "app"
    (out / "shards").mkdir(parents=True)
    (out / "manifest.json").write_text('{"name": "a web app"}')
    (out / "shards" / "a.bin").write_text("precious")
    for flags in ([], ["--resume"], ["--overwrite"]):
        result = hbp_prep("run", write_recipe(), "--output", out, *flags, expect=2)
        assert "not from hbp-prep" in result.output
    assert (out / "shards" / "a.bin").read_text() == "precious"


def test_temporary_files_of_others_stay(prepared, hbp_prep) -> None:
    recipe, out = prepared
    (out / "mine.tmp").write_text("precious")
    (out / "folder.1.tmp").mkdir()
    hbp_prep("run", recipe, "--output", out, "--resume", *CHANGE, *QUIET)
    assert (out / "mine.tmp").read_text() == "precious"
    assert (out / "folder.1.tmp").is_dir()


def test_very_deep_rows_are_rejected_one_by_one(hbp_prep, write_recipe, tmp_path, tiny_corpus) -> None:
    good = (tiny_corpus / "short.jsonl").read_text().splitlines()[:100]
    nested = "[" * 1010 + "]" * 1010
    chat = json.dumps([{"role": "user", "content": "a<|end|>"}, {"role": "assistant", "content": "b"}])
    row = f'{{"messages": {chat}, "chat_template_kwargs": {{"deep": {nested}}}}}'
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join([*good, row]))
    out = tmp_path / "out"
    hbp_prep("run", write_recipe(sources=[{"name": "a", "paths": str(data)}]), "--output", out, *QUIET)
    hbp_prep("verify", out, *QUIET)


@pytest.mark.parametrize("name", ["schedule/assignments.arrow", "schedule/micro_steps.arrow", "samples.arrow"])
@pytest.mark.parametrize("position", [0.2, 0.35, 0.5, 0.65])
def test_a_report_of_damaged_tables_is_a_sentence(name, position, prepared, hbp_prep) -> None:
    _, out = prepared
    flip(out / name, position)
    result = hbp_prep("report", out, "--quiet", expect=None)
    assert result.exit_code in (0, 1)  # a flipped bit of padding, or of a name, changes no figure
    if result.exit_code:
        assert name in result.output or "does not verify" in result.output


def test_a_terminal_that_knows_ascii_only(prepared) -> None:
    _, out = prepared
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "hbp_prep.cli", "inspect", str(out)]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert b"trained" in done.stdout
