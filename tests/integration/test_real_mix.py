"""The published recipe on real data: 32,018 short and 539 long conversations in two row shapes, 32 GPUs."""

import json
from pathlib import Path

import pytest

RECIPE = Path(__file__).parents[2] / "pipelines" / "tulu3_longcite.yaml"

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def run_recipe(shared_data, monkeypatch, hbp_prep, tmp_path):
    """Run the recipe into a new folder."""
    monkeypatch.setenv("TULU3", str(shared_data / "corpora" / "tulu3_shaped" / "*.parquet"))
    monkeypatch.setenv("LONGCITE", str(shared_data / "corpora" / "long" / "*" / "*.jsonl"))
    monkeypatch.setenv("TOKENIZER", str(shared_data / "tokenizers" / "llama3_1"))

    def run(name: str, *options: object) -> Path:
        hbp_prep("run", RECIPE, "--output", tmp_path / name, "--quiet", *options)
        return tmp_path / name

    return run


def test_the_real_mix(run_recipe, hbp_prep, contents) -> None:
    out = run_recipe("one", "--workers", 1)
    hbp_prep("verify", out, "--quiet")
    report = json.loads((out / "report" / "metrics.json").read_text())
    totals = json.loads((out / "manifest.json").read_text())["totals"]
    assert totals["rows_read"] == 32_018 + 539
    assert totals["num_samples"] + totals["num_rejected"] == totals["rows_read"]
    assert totals["num_rejected"] == 0
    assert totals["by_source"]["tulu3"]["num_tokens"] / 32_018 == pytest.approx(188, abs=1.5)
    assert totals["by_source"]["longcite"]["num_tokens"] / 539 == pytest.approx(10_400, rel=0.01)

    ours, naive = report["ours"], report["naive"]
    assert naive["cr"] == 1
    assert naive["abr"] == pytest.approx(0.49, abs=0.05)
    assert ours["abr"] < 0.04
    assert ours["wabr"] < 0.04
    assert ours["cr_floor"] == pytest.approx(0.281, abs=0.002)
    assert ours["cr"] < 0.32
    assert ours["dbr"] < 0.005

    assert contents(run_recipe("two", "--workers", 2)) == contents(out)


@pytest.mark.parametrize("strategy", ["random", "isf", "ffs", "ffd", "bfd"])
def test_every_strategy_verifies(strategy, run_recipe, hbp_prep) -> None:
    out = run_recipe(strategy, "--set", f"packing.strategy={strategy}", "--set", "sources.0.limit=4000")
    hbp_prep("verify", out, "--quiet")
