"""Verification finds every kind of fault and names it, also when all checksums were made to agree again."""

import os
import re
import shutil

import numpy as np
import pytest

from hbp_prep.engines.local import LocalEngine
from hbp_prep.errors import ManifestError
from hbp_prep.manifest.checks.findings import CHECKS
from hbp_prep.manifest.verify import examine, verify
from tests.unit.manifest.forging import edit_rows, failed, manifest_dict, read_rows, reseal
from tests.unit.sharding.building import VOCAB_SIZE

SHARD = "shards/L64/part-00000.arrow"
OTHER_SHARD = "shards/L64/part-00001.arrow"
SAMPLES, REJECTED = "samples.arrow", "rejected.arrow"
MICRO_STEPS, ASSIGNMENTS = "schedule/micro_steps.arrow", "schedule/assignments.arrow"


def with_segment(rows, segment, **changes):
    """Set one segment's entries of the first pack."""
    for name, value in changes.items():
        rows[0][name][segment] = value


def exchange_samples(rows):
    """Swap the first samples of the first two packs, tokens and all, sums made right again."""
    first, second = rows[0], rows[1]
    parts = []
    for pack in (first, second):
        length = pack["seq_lengths"][0]
        parts.append({name: pack[name][:length] for name in ("input_ids", "loss_mask")})
        parts[-1] |= {name: pack[name][:1] for name in ("seq_lengths", "sample_ids")}
        for name in ("input_ids", "loss_mask"):
            del pack[name][:length]
        for name in ("seq_lengths", "sample_ids"):
            del pack[name][:1]
    for pack, part in ((first, parts[1]), (second, parts[0])):
        for name, values in part.items():
            pack[name][:0] = values
        pack["num_tokens"] = len(pack["input_ids"])
        pack["num_loss_tokens"] = sum(pack["loss_mask"])
        pack["attention_cost"] = sum(length**2 for length in pack["seq_lengths"])


def move_boundary(rows):
    rows[0]["seq_lengths"][0] += 1


def zero_length(rows):
    rows[0]["seq_lengths"][:0] = [0]
    rows[0]["sample_ids"][:0] = [rows[0]["sample_ids"][0]]


def first_token_a_target(rows):
    rows[0]["num_loss_tokens"] += 1
    rows[0]["loss_mask"][0] = True


def swap_assignments(rows):
    """Exchange a pack of each packing group, with their places."""
    names = ("pack_id", "shard", "row")
    other = next(row for row in rows if row["pack_id"] != rows[0]["pack_id"] and row["step"] == rows[-1]["step"])
    long = max(rows, key=lambda row: row["pack_id"])
    del other
    for name in names:
        rows[0][name], long[name] = long[name], rows[0][name]


def repeat_assignment(rows):
    for name in ("pack_id", "shard", "row"):
        rows[1][name] = rows[0][name]


def set_row(index, **values):
    return lambda rows: rows[index].update(values)


def bump(index, name, by=1):
    return lambda rows: rows[index].update({name: rows[index][name] + by})


def reject_a_trained_row(rows):
    rows[0] |= {"file": "/data/a.jsonl", "row": 0, "source": "chats"}


FORGERIES = {
    "exchange two samples": (SHARD, exchange_samples, "samples", r"row \d+: pack_id is 0, the shards say 1"),
    "a sample twice": (
        SHARD,
        lambda rows: with_segment(rows, 0, sample_ids=rows[1]["sample_ids"][0]),
        "samples",
        "is in pack 1",
    ),
    "an unknown sample": (
        SHARD,
        lambda rows: with_segment(rows, 0, sample_ids=10**9),
        "samples",
        "holds sample 1000000000",
    ),
    "first token a target": (SHARD, first_token_a_target, "tokens", "pack 0: the first token of segment 0"),
    "a hidden target": (
        SHARD,
        lambda rows: rows[0]["loss_mask"].__setitem__(1, not rows[0]["loss_mask"][1]),
        "packs",
        "pack 0: num_loss_tokens",
    ),
    "id beyond the vocabulary": (
        SHARD,
        lambda rows: with_segment(rows, 3, input_ids=VOCAB_SIZE),
        "tokens",
        f"pack 0: token id {VOCAB_SIZE}",
    ),
    "negative id": (SHARD, lambda rows: with_segment(rows, 3, input_ids=-1), "tokens", "token id -1"),
    "num_tokens": (SHARD, bump(1, "num_tokens"), "packs", "pack 1: num_tokens is"),
    "num_loss_tokens": (SHARD, bump(1, "num_loss_tokens"), "packs", "pack 1: num_loss_tokens is"),
    "attention_cost": (SHARD, bump(1, "attention_cost"), "packs", "pack 1: attention_cost is"),
    "seq_lengths": (SHARD, move_boundary, "packs", "pack 0: seq_lengths add up to"),
    "an empty segment": (SHARD, zero_length, "packs", "pack 0: has a seq_length below 1"),
    "pack ids out of order": (SHARD, set_row(0, pack_id=1), "packs", "row 0 is pack 1, expected 0"),
    "a pack lost": (SHARD, lambda rows: rows.pop(), "packs", "is pack"),
    "sample ids out of order": (SAMPLES, set_row(0, sample_id=5), "samples", "row 0: sample_id is 5"),
    "sample length": (SAMPLES, bump(2, "num_tokens"), "samples", "row 2: num_tokens"),
    "sample loss tokens": (SAMPLES, bump(2, "num_loss_tokens"), "samples", "row 2: num_loss_tokens"),
    "sample's pack": (SAMPLES, bump(2, "pack_id"), "samples", "row 2: pack_id"),
    "sample's group": (
        SAMPLES,
        lambda rows: rows[0].update(group="L64" if rows[0]["group"] == "L256" else "L256"),
        "samples",
        "row 0: group is",
    ),
    "truncated to more": (SAMPLES, set_row(0, truncated_from=1), "samples", "row 0: truncated_from"),
    "a sample gone": (SAMPLES, lambda rows: rows.pop(), "samples", "holds sample"),
    "sample's source": (SAMPLES, set_row(0, source="books"), "totals", "by_source"),
    "negative row": (SAMPLES, set_row(0, row=-4), "samples", "row is negative"),
    "trained on and rejected": (REJECTED, reject_a_trained_row, "rows", "is in samples and in rejected"),
    "rejected twice": (REJECTED, lambda rows: rows.append(rows[0]), "rows", "rejected twice"),
    "a rejected row lost": (REJECTED, lambda rows: rows.pop(), "rows", "were read"),
    "unknown reason": (REJECTED, set_row(0, reason="dull"), "rows", "'dull' is not a known reason"),
    "groups exchanged": (ASSIGNMENTS, swap_assignments, "schedule", "the packing group is not that of pack"),
    "a pack twice": (ASSIGNMENTS, repeat_assignment, "schedule", "comes 2 times in epoch 0"),
    "wrong row": (ASSIGNMENTS, bump(0, "row"), "schedule", "the row is not that of pack"),
    "wrong shard": (ASSIGNMENTS, bump(0, "shard"), "schedule", "the shard is not that of pack"),
    "unknown pack": (
        ASSIGNMENTS,
        set_row(3, pack_id=10**6),
        "schedule",
        "step 0, micro_step 0, dp_rank 3: there is no pack 1000000",
    ),
    "an empty pack": (ASSIGNMENTS, set_row(0, pack_id=-1), "schedule", "there is no pack -1"),
    "wrong DP rank": (ASSIGNMENTS, set_row(0, dp_rank=1), "schedule", "row 0: dp_rank is 1, expected 0"),
    "assignment lost": (ASSIGNMENTS, lambda rows: rows.pop(), "schedule", "DP ranks in all"),
    "micro-step tokens": (MICRO_STEPS, bump(1, "num_tokens"), "schedule", "micro_step 1: num_tokens"),
    "micro-step loss tokens": (MICRO_STEPS, bump(1, "num_loss_tokens"), "schedule", "micro_step 1: num_loss_tokens"),
    "a gap in steps": (MICRO_STEPS, bump(-1, "step", 5), "schedule", "not numbered"),
    "a gap in micro-steps": (MICRO_STEPS, bump(1, "micro_step"), "schedule", "row 1: micro_step is 2, expected 1"),
    "unknown group": (MICRO_STEPS, set_row(0, group="L1"), "schedule", "no packing group 'L1'"),
    "unknown phase": (MICRO_STEPS, set_row(0, phase="noon"), "schedule", "no phase 'noon'"),
    "epoch": (MICRO_STEPS, bump(0, "epoch"), "schedule", "goes back to epoch 0"),
    **{
        name: (MICRO_STEPS, bump(1, name, 2e-5), "metrics", f"step 0, micro_step 1: {name} is")
        for name in ("abr", "dbr", "tbr", "predicted_seconds")
    },
    "not a number": (MICRO_STEPS, set_row(1, abr=float("nan")), "metrics", "abr is nan"),
}


def test_an_untouched_folder_verifies(pristine):
    assert [check.name for check in verify(pristine).checks] == list(CHECKS)
    quick = verify(pristine / "manifest.json", quick=True)
    assert quick.ok
    assert "no checksum" in quick.checks[0].detail
    assert quick.to_dict()["ok"] is True


def test_processes_find_the_same(out):
    edit_rows(out / SHARD, first_token_a_target)
    reseal(out)
    assert examine(out, map_tasks=LocalEngine(2).map) == examine(out)


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_are_found_and_named(out, name):
    path, edit, check, place = FORGERIES[name]
    edit_rows(out / path, edit)
    assert path in failed(out)["files"]
    reseal(out)
    found = failed(out)
    assert "files" not in found
    assert re.search(place, found[check]), found
    with pytest.raises(ManifestError, match=re.escape(f"{check}: ")):
        verify(out)


@pytest.mark.parametrize(
    "name", [name for name in FORGERIES if FORGERIES[name][2] in ("samples", "schedule", "metrics")]
)
def test_quick_verification_finds_what_needs_no_tokens(out, name):
    path, edit, check, _ = FORGERIES[name]
    edit_rows(out / path, edit)
    reseal(out)
    assert (check in failed(out, quick=True)) == (name != "sample loss tokens")


def test_two_shards_exchanged(out):
    (out / SHARD).rename(out / "aside")
    (out / OTHER_SHARD).rename(out / SHARD)
    (out / "aside").rename(out / OTHER_SHARD)
    assert SHARD in failed(out)["files"]
    reseal(out)
    assert f"{SHARD}: row 0 is pack" in failed(out)["packs"]


def test_a_sample_in_two_shards(out):
    sample = read_rows(out / SHARD)[0]["sample_ids"][0]
    edit_rows(out / OTHER_SHARD, lambda rows: with_segment(rows, 0, sample_ids=sample))
    reseal(out)
    found = failed(out)["samples"]
    assert re.search(rf"{OTHER_SHARD}: sample {sample} is in pack \d+ although a pack before it has it", found)
    assert "1 samples are in no pack" in found


def test_a_shard_of_another_group(out):
    shutil.copy(out / "shards/L256/part-00000.arrow", out / SHARD)
    reseal(out)
    assert "its hbp.group is L256" in failed(out)["files"]


def test_missing_cut_and_stray_files(out):
    (out / SHARD).unlink()
    os.truncate(out / OTHER_SHARD, 100)
    (out / "shards" / "L64" / "part-00009.arrow").write_bytes(b"x")
    (out / "schedule" / "left.tmp").write_bytes(b"x")
    found = failed(out)
    assert f"{SHARD} is missing" in found["files"]
    assert f"{OTHER_SHARD} has 100 bytes" in found["files"]
    assert "part-00009.arrow" in found["stray_files"]
    assert "left.tmp" in found["stray_files"]
    assert "not checked" in found["samples"]


def test_a_link_that_leaves_the_folder(out, tmp_path):
    shutil.move(out / SHARD, tmp_path / "outside.arrow")
    (out / SHARD).symlink_to(tmp_path / "outside.arrow")
    assert "a link that leaves the folder" in failed(out)["files"]


def test_no_stepless_loss(out):
    """The loss divides by a step's loss tokens: a step without any is refused."""
    for path in sorted(out.glob("shards/*/*.arrow")):
        edit_rows(
            path,
            lambda rows: [row.update(loss_mask=[False] * len(row["loss_mask"]), num_loss_tokens=0) for row in rows],
        )
    edit_rows(out / MICRO_STEPS, lambda rows: [row.update(num_loss_tokens=0) for row in rows])
    reseal(out)
    assert "step 0 has no loss tokens" in failed(out)["schedule"]


def test_empty_packs_only_after_a_replan(out):
    """Fewer than one micro-step's worth of empty packs per packing group is right when the manifest says replanned."""
    rows = read_rows(out / ASSIGNMENTS)
    num_packs = sum(group["num_packs"] for group in manifest_dict(out)["groups"])
    assert len(rows) == 2 * num_packs
    edit_rows(out / ASSIGNMENTS, set_row(0, pack_id=-1, shard=-1, row=-1))
    reseal(out, lambda value: value["schedule"].update(replanned=True))
    found = failed(out)["schedule"]
    assert "comes 0 times in epoch 0" in found
    assert "there is no pack -1" not in found
    assert "empty packs" not in found
    edit_rows(out / ASSIGNMENTS, lambda rows: [row.update(pack_id=-1) for row in rows[:4]])
    reseal(out)
    assert "epoch 0 has 4 empty packs of packing group L64, a whole micro-step's worth" in failed(out)["schedule"]


def test_a_large_list_is_as_good(out):
    """Types may widen."""
    import pyarrow as pa

    for path in sorted(out.glob("shards/*/*.arrow")):
        table = pa.ipc.open_file(path.read_bytes()).read_all()
        for index, field in enumerate(table.schema):
            if pa.types.is_list(field.type):
                wide = table.column(index).cast(pa.large_list(field.type.value_type))
                table = table.set_column(index, pa.field(field.name, wide.type), wide)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    reseal(out)
    assert failed(out) == {}


def test_problems_are_counted_not_listed_without_end(out):
    edit_rows(out / SHARD, lambda rows: [row.update(attention_cost=np.int64(1)) for row in rows])
    reseal(out)
    assert re.search(r"\(\d+ more packs likewise\)", failed(out)["packs"])
