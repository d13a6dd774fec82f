"""``plan``, ``compare`` and ``replan`` as users call them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from hbp_prep.demo.build import build_demo_corpus
from hbp_prep.manifest.document import load_manifest
from hbp_prep.manifest.schedule import load_schedule
from hbp_prep.manifest.verify import verify
from hbp_prep.progress import NoProgress

PLAN = ("--groups", "4K:1,64K:4", "--world-size", 8, "--quiet")


@pytest.fixture(scope="module")
def lengths(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    tokens = np.concatenate([rng.integers(8, 4000, 600), rng.integers(5000, 60_000, 20)])
    path = tmp_path_factory.mktemp("lengths") / "lengths.parquet"
    pa.parquet.write_table(pa.table({"num_tokens": tokens, "source": ["a", "b"] * 310}), path)
    return path


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from click.testing import CliRunner

    from hbp_prep.cli.main import main

    folder = tmp_path_factory.mktemp("demo")
    build_demo_corpus(folder / "demo", progress=NoProgress())
    result = CliRunner().invoke(main, ["run", str(folder / "demo/recipe.yaml"), "-o", str(folder / "out"), "-q"])
    assert result.exit_code == 0, result.output
    return folder


def test_plan_writes_the_contracts_columns(hbp_prep: Any, lengths: Path, tmp_path: Path) -> None:
    printed = hbp_prep("plan", "--lengths", lengths, *PLAN, "--json", "--output", tmp_path / "p")
    figures = json.loads(printed.output)
    assert figures["planning_seconds"] > 0 and figures["bounds"]["abr"] <= figures["abr"]
    tables = {
        name: pa.ipc.open_file(tmp_path / "p" / f"{name}.arrow").read_all()
        for name in ("samples", "packs", "schedule/micro_steps", "schedule/assignments")
    }
    packs = tables["packs"].to_pydict()
    assert sorted(sample for pack in packs["sample_ids"] for sample in pack) == list(range(620))
    assert [sum(pack) for pack in packs["seq_lengths"]] == packs["num_tokens"]
    assert sorted(tables["schedule/assignments"]["pack_id"].to_pylist()) == packs["pack_id"]
    pack_of = dict(
        zip(tables["samples"]["sample_id"].to_pylist(), tables["samples"]["pack_id"].to_pylist(), strict=True)
    )
    assert all(pack_of[sample] == pack for pack, ids in enumerate(packs["sample_ids"]) for sample in ids)


def test_compare_has_a_row_per_method_and_a_chart(hbp_prep: Any, lengths: Path, tmp_path: Path) -> None:
    chart = tmp_path / "chart.svg"
    options = ("--method", "isf", "--method", "hbp", "--chart", chart, "--json")
    rows = json.loads(hbp_prep("compare", "--lengths", lengths, *PLAN, *options).output)
    assert [row["method"] for row in rows] == ["isf", "hbp", "this plan (bfs)"]
    assert len({row["cr_floor"] for row in rows}) == 1
    assert chart.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan"], "either a RECIPE or --lengths"),
        (["plan", "--lengths", "x.parquet"], "needs --groups and --world-size"),
        (["plan", "--lengths", "x.txt", *PLAN], ".parquet"),
        (["plan", "--lengths", "x.parquet", "--groups", "16Q", "--world-size", 8], "16Q"),
        (["plan", "--lengths", "x.parquet", "--groups", "16K:a", "--world-size", 8], "LENGTH:SP_DEGREE"),
    ],
)
def test_wrong_calls_are_one_sentence(hbp_prep: Any, arguments: list[Any], words: str) -> None:
    result = hbp_prep(*arguments, expect=None)
    assert result.exit_code in (1, 2) and words in result.output and "Traceback" not in result.output


@pytest.mark.parametrize(
    "options", [("--world-size", 12), ("--groups", "64K:2"), ("--curriculum", "none", "--seed", 7)]
)
def test_replan_beside_keeps_every_promise(hbp_prep: Any, prepared: Path, tmp_path: Path, options: Any) -> None:
    out, other = prepared / "out", tmp_path / "other"
    before = (out / "manifest.json").read_bytes()
    hbp_prep("replan", out, *options, "--output", other, "--quiet")
    verify(other)
    assert (out / "manifest.json").read_bytes() == before
    manifest = load_manifest(other)
    empty = int((load_schedule(other, manifest).pack_id < 0).sum())
    assert empty == sum(-group.num_packs % group.dp_size for group in manifest.groups)


def test_replan_in_place_survives_a_kill_at_any_file(
    hbp_prep: Any, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hbp_prep import files

    class Killed(BaseException):
        pass

    original = files.commit
    worlds = []
    for kill_at in range(1, 5):
        out = tmp_path / f"out{kill_at}"
        shutil.copytree(prepared / "out", out)
        count = 0

        def commit(temp: Path, final: Path, kill_at: int = kill_at) -> None:
            nonlocal count
            original(temp, final)
            count += 1
            if count == kill_at:
                raise Killed

        monkeypatch.setattr(files, "commit", commit)
        with pytest.raises(Killed):
            hbp_prep("replan", out, "--world-size", 4, "--quiet")
        monkeypatch.setattr(files, "commit", original)
        assert load_schedule(out, load_manifest(out))
        verify(out)
        worlds.append(load_manifest(out).world_size)
        hbp_prep("replan", out, "--world-size", 4, "--quiet")
        verify(out)
        assert len(list(out.glob("schedule*"))) == 1
    assert worlds == [8, 8, 4, 4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "RECIPE", "--seed", 3], "--seed belongs to --lengths"),
        (["plan", "RECIPE", "--curriculum", "ramp"], "--curriculum belongs to --lengths"),
        (["compare", "RECIPE", "--micro-steps-per-step", 2], "--micro-steps-per-step belongs to --lengths"),
        (["plan", "--lengths", "LENGTHS", *PLAN, "--set", "seed=3"], "--set belongs to a RECIPE"),
        (["compare", "--lengths", "LENGTHS", *PLAN, "--work", "w"], "--work belongs to a RECIPE"),
        (["compare", "--lengths", "LENGTHS", *PLAN, "--chart", "c.png"], "must end in .svg or .html"),
        (["compare", "RECIPE", "--method", "hpb"], "did you mean 'hbp'?"),
    ],
)
def test_no_option_is_ignored(hbp_prep: Any, prepared: Path, lengths: Path, arguments: list[Any], words: str) -> None:
    places = {"RECIPE": prepared / "demo/recipe.yaml", "LENGTHS": lengths}
    result = hbp_prep(*(places.get(argument, argument) for argument in arguments), expect=2)
    assert words in result.output


def test_plan_refuses_a_filled_folder_before_it_reads(hbp_prep: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    result = hbp_prep("plan", "--lengths", tmp_path / "none.parquet", *PLAN, "--output", tmp_path, expect=2)
    assert "is not empty" in result.output


def test_foreign_files_like_a_schedules_survive(hbp_prep: Any, prepared: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(prepared / "out", out)
    (out / "schedule-notes.txt").write_text("mine")
    (out / "schedule-old").mkdir()
    hbp_prep("replan", out, "--world-size", 4, "--quiet")
    hbp_prep("run", out / "resolved.yaml", "-o", out, "--overwrite", "--quiet")
    assert (out / "schedule-notes.txt").read_text() == "mine" and (out / "schedule-old").is_dir()
    assert not [path for path in out.glob("schedule-*") if path.name not in ("schedule-notes.txt", "schedule-old")]
    verify(out)


def test_two_replans_at_once_are_one(hbp_prep: Any, prepared: Path, tmp_path: Path) -> None:
    from hbp_prep.pipeline.folder import OutputFolder

    out = tmp_path / "out"
    shutil.copytree(prepared / "out", out)
    before = (out / "manifest.json").read_bytes()
    with OutputFolder(out).lock():
        result = hbp_prep("replan", out, "--world-size", 4, "--quiet", expect=2)
    assert "in use by another run" in result.output
    assert (out / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("name", ["shards/4K/part-00000.arrow", "samples.arrow", "rejected.arrow"])
@pytest.mark.parametrize("damage", ["remove", "cut"])
def test_a_damaged_folder_is_not_replanned(
    hbp_prep: Any, prepared: Path, tmp_path: Path, name: str, damage: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(prepared / "out", out)
    place = next(out.glob(name.replace("4K", "*")))
    before = (out / "manifest.json").read_bytes()
    if damage == "remove":
        place.unlink()
    else:
        place.write_bytes(place.read_bytes()[:-8])
    for options in (("--world-size", 4), ("--world-size", 4, "--output", tmp_path / "other")):
        result = hbp_prep("replan", out, *options, "--quiet", expect=1)
        assert str(place) in result.output
    assert (out / "manifest.json").read_bytes() == before and not (tmp_path / "other").exists()


def test_a_cluster_that_the_packs_do_not_fill_has_a_report_too(hbp_prep: Any, prepared: Path, tmp_path: Path) -> None:
    hbp_prep("replan", prepared / "out", "--world-size", 100_000, "--output", tmp_path / "other", "--quiet")
    verify(tmp_path / "other")
    report = json.loads(hbp_prep("report", tmp_path / "other", "--json", "--quiet").output)
    assert report["naive"]["abr"] > 0.99


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"num_tokens": [1.5]}, "whole numbers"),
        ({"num_tokens": [1, None]}, "whole numbers"),
        ({"num_tokens": ["a"]}, "whole numbers"),
        ({"num_tokens": [3, 0]}, "row 1: num_tokens is 0"),
        ({"num_tokens": [2**40]}, "between 1 and 2,147,483,647"),
        ({"num_tokens": pa.array([], pa.int64())}, "has no rows"),
        ({"length": [1]}, "no column num_tokens; it has length"),
        ({"num_tokens": [5], "num_loss_tokens": [6]}, "row 0 has more num_loss_tokens"),
        ({"num_tokens": [5], "source": [[1]]}, "source must hold names"),
        ({"num_tokens": [5] * 40_000, "source": [str(index) for index in range(40_000)]}, "40,000 different sources"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "compare"])
def test_bad_lengths_are_one_sentence(
    hbp_prep: Any, tmp_path: Path, command: str, columns: dict[str, Any], words: str
) -> None:
    pa.parquet.write_table(pa.table(columns), tmp_path / "l.parquet")
    result = hbp_prep(command, "--lengths", tmp_path / "l.parquet", *PLAN, expect=1)
    assert words in result.output and len(result.output.strip().splitlines()) == 1


def test_compare_refuses_what_no_method_could_place(hbp_prep: Any, tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"num_tokens": [70_000]}), tmp_path / "l.parquet")
    result = hbp_prep("compare", "--lengths", tmp_path / "l.parquet", *PLAN, expect=1)
    assert "the longest packing length is 65536" in result.output


def test_too_many_gpus_are_one_sentence(hbp_prep: Any, lengths: Path) -> None:
    result = hbp_prep("plan", "--lengths", lengths, "--groups", "64K:1", "--world-size", 10**12, expect=2)
    assert "cluster.world_size is 1000000000000; it must lie between 1 and 10000000" in result.output
