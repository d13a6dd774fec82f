"""Every number that the manifest prints is compared with the files."""

import pytest

from tests.unit.manifest.forging import failed, reseal


def change(value, path, by):
    *parents, last = path
    for key in parents:
        value = value[key]
    value[last] = by(value[last])


MANIFEST_NUMBERS = [
    (("totals", "num_samples"), "totals"),
    (("totals", "num_tokens"), "totals"),
    (("totals", "num_loss_tokens"), "totals"),
    (("totals", "num_rejected"), "totals"),
    (("totals", "rows_read"), "rows"),
    (("totals", "rejected_by_reason", "bad_role"), "totals"),
    (("totals", "by_source", "chats", "num_tokens"), "totals"),
    (("groups", 0, "num_packs"), "totals"),
    (("groups", 0, "num_tokens"), "totals"),
    (("groups", 1, "num_loss_tokens"), "totals"),
    (("groups", 0, "shards", 0, "num_tokens"), "totals"),
    (("groups", 0, "shards", 0, "rows"), "files"),
    (("groups", 0, "shards", 0, "bytes"), "files"),
    (("samples", "rows"), "files"),
    (("rejected", "rows"), "files"),
    (("schedule", "micro_steps", "rows"), "schedule"),
    (("schedule", "num_steps"), "schedule"),
    (("schedule", "num_micro_steps"), "schedule"),
    (("schedule", "epochs"), "schedule"),
]
METRICS = ["abr", "wabr", "dbr", "tbr", "wtbr", "cr", "cr_floor", "pr", "pr_executed", "ave_tokens", "predicted_hours"]
METRICS += ["predicted_gpu_days", "num_packs", "num_steps", "num_samples", "num_loss_tokens"]


@pytest.mark.parametrize(("path", "check"), MANIFEST_NUMBERS)
def test_numbers_of_the_manifest(out, path, check):
    reseal(out, lambda value: change(value, path, lambda number: number + 1))
    assert check in failed(out)


@pytest.mark.parametrize("name", METRICS)
def test_metrics_of_the_manifest(out, name):
    reseal(out, lambda value: change(value, ("metrics", name), lambda number: number * 1.00001 + 1e-5))
    assert name in failed(out)["metrics"]
    reseal(out, lambda value: value["metrics"].pop(name))
    assert f"{name} is None" in failed(out)["metrics"]


@pytest.mark.parametrize("name", ["abr", "wabr", "pr", "num_packs", "attention_cost", "predicted_hours"])
def test_metrics_of_packing_groups(out, name):
    reseal(
        out, lambda value: change(value, ("metrics", "packing_groups", 1, name), lambda number: 1.01 * number + 0.01)
    )
    assert f"packing_groups L256: {name}" in failed(out)["metrics"]


def test_settings_that_contradict_the_packs(out):
    reseal(out, lambda value: change(value, ("groups", 0, "pack_length"), lambda length: length - 5))
    assert "its packing group allows 59" in failed(out)["packs"]


def test_vocabulary_too_small(out):
    reseal(out, lambda value: change(value, ("tokenizer", "vocab_size"), lambda size: 10))
    assert "is not in [0, 10)" in failed(out)["tokens"]


def test_cost_model_of_another_kind(out):
    reseal(out, lambda value: value.update(cost_model={"provenance": "guess"}))
    assert "guess" in failed(out)["metrics"]
