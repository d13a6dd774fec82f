"""What training reads: the right pack for every rank, and one clear sentence for a folder that cannot be read."""

import json
import os
import re

import numpy as np
import pytest

from hbp_prep.errors import ManifestError
from hbp_prep.manifest.reader import ManifestReader
from tests.unit.manifest.forging import edit_rows, read_rows, reseal

SHARD = "shards/L64/part-00000.arrow"
ASSIGNMENTS = "schedule/assignments.arrow"


def test_arrays_have_the_stated_types(pristine):
    pack = next(ManifestReader(pristine).all_packs())
    types = {name: getattr(pack, name).dtype.name for name in ("input_ids", "loss_mask", "position_ids", "sample_ids")}
    assert types == {"input_ids": "int32", "loss_mask": "bool", "position_ids": "int32", "sample_ids": "int64"}
    assert pack.seq_lengths.dtype == pack.cu_seqlens.dtype == np.int32
    assert pack.cu_seqlens.tolist() == [0, *np.cumsum(pack.seq_lengths).tolist()]
    assert not pack.input_ids.flags.owndata
    assert not pack.input_ids.flags.writeable


def test_micro_steps_tell_what_the_schedule_holds(pristine):
    reader = ManifestReader(pristine)
    rows = read_rows(pristine / "schedule/micro_steps.arrow")
    found = [micro_step for step in range(reader.num_steps) for micro_step in reader.micro_steps(step)]
    assert len(found) == len(rows)
    for micro_step, row in zip(found, rows, strict=True):
        for name in ("step", "micro_step", "group", "phase", "epoch", "num_tokens", "num_loss_tokens"):
            assert getattr(micro_step, name) == row[name]
        group = reader.manifest.group(row["group"])
        assert (micro_step.dp_size, micro_step.sp_degree) == (group.dp_size, group.sp_degree)


def test_loss_tokens_of_a_step_are_those_of_its_masks(pristine):
    reader = ManifestReader(pristine)
    for step in range(reader.num_steps):
        packs = [
            reader.pack(step, item.micro_step, rank)
            for item in reader.micro_steps(step)
            for rank in range(item.dp_size)
        ]
        assert reader.step_loss_tokens(step) == sum(int(pack.loss_mask.sum()) for pack in packs)


def test_sp_peers_get_the_same_pack_and_dp_ranks_cover_all(pristine):
    reader = ManifestReader(pristine)
    num_packs = sum(group.num_packs for group in reader.manifest.groups)
    seen: dict[int, set[int]] = {}
    for rank in range(reader.manifest.world_size):
        for micro_step, pack in reader.packs_of_rank(rank):
            assert pack.group == micro_step.group
            key = (micro_step.epoch, pack.pack_id)
            seen.setdefault(key, set()).add(rank)
    assert len(seen) == 2 * num_packs
    for (_, pack_id), ranks in seen.items():
        sp_degree = 2 if pack_id >= reader.manifest.groups[0].num_packs else 1
        assert len(ranks) == sp_degree
        assert min(ranks) % sp_degree == 0
        assert max(ranks) - min(ranks) == sp_degree - 1


def test_starting_in_the_middle_gives_the_tail(pristine):
    reader = ManifestReader(pristine)
    whole = [(item.step, pack.pack_id) for item, pack in reader.packs_of_rank(1)]
    tail = [(item.step, pack.pack_id) for item, pack in reader.packs_of_rank(1, first_step=3)]
    assert tail == [entry for entry in whole if entry[0] >= 3]


@pytest.mark.parametrize(
    ("step", "micro_step", "dp_rank"), [(10**6, 0, 0), (-1, 0, 0), (0, 99, 0), (0, -1, 0), (0, 0, 4), (0, 0, -1)]
)
def test_places_that_do_not_exist(pristine, step, micro_step, dp_rank):
    with pytest.raises(IndexError):
        ManifestReader(pristine).pack(step, micro_step, dp_rank)


def test_ranks_that_do_not_exist(pristine):
    with pytest.raises(IndexError, match="rank 4 is not in a world of 4"):
        next(ManifestReader(pristine).packs_of_rank(4))


def test_an_empty_pack_of_a_replanned_schedule(out):
    edit_rows(out / ASSIGNMENTS, lambda rows: rows[0].update(pack_id=-1, shard=-1, row=-1))
    reseal(out, lambda value: value["schedule"].update(replanned=True))
    pack = ManifestReader(out).pack(0, 0, 0)
    assert (pack.pack_id, len(pack.input_ids), pack.cu_seqlens.tolist()) == (-1, 0, [0])


@pytest.mark.parametrize(
    ("place", "message"), [({"pack_id": -1}, "schedule says -1"), ({"shard": 99}, "names shard 99")]
)
def test_a_schedule_that_points_nowhere(out, place, message):
    """An empty pack where none may be would be data lost in silence."""
    edit_rows(out / ASSIGNMENTS, lambda rows: rows[0].update(place))
    reseal(out)
    with pytest.raises(ManifestError, match=message):
        ManifestReader(out).pack(0, 0, 0)


def refusal(out, **options):
    with pytest.raises(ManifestError) as caught:
        list(ManifestReader(out, **options).all_packs())
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_unfinished_or_absent(out, tmp_path):
    (out / "manifest.json").unlink()
    assert "has no manifest.json: it is unfinished" in refusal(out)
    assert "is not a folder" in refusal(tmp_path / "nowhere")
    assert "is not a folder" in refusal(out / "samples.arrow")


def test_missing_or_cut_files_are_refused_when_opened(out):
    os.truncate(out / SHARD, 50)
    assert f"{SHARD} has 50 bytes" in refusal(out)
    (out / SHARD).unlink()
    assert f"{SHARD} is missing" in refusal(out)


def test_checksums_on_request(out):
    data = bytearray((out / SHARD).read_bytes())
    data[len(data) // 2] ^= 1
    (out / SHARD).write_bytes(data)
    assert "does not match its checksum" in refusal(out, verify_checksums=True)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda value: value.update(format="parquet"), "this is not a manifest"),
        (lambda value: value.update(format_version=2), "format_version: 2 is newer than 1"),
        (lambda value: value.update(format_version="1"), "format_version: expected a whole number"),
        (lambda value: value.update(layout="indexed"), "layout: expected 'packed'"),
        (lambda value: value.update(seed=7), "does not match its own checksum"),
    ],
)
def test_other_formats_and_edited_manifests(out, edit, message):
    value = json.loads((out / "manifest.json").read_text())
    edit(value)
    (out / "manifest.json").write_text(json.dumps(value))
    assert message in refusal(out)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": NaN}', b"[" * 100_000])
def test_no_json(out, data):
    (out / "manifest.json").write_bytes(data)
    assert re.search(r"it is not (a )?JSON", refusal(out))


def test_a_pack_that_is_not_where_the_schedule_says(out):
    edit_rows(out / SHARD, lambda rows: rows[0].update(pack_id=77))
    reseal(out)
    reader = ManifestReader(out)
    with pytest.raises(ManifestError, match="row 0 is pack 77; the schedule says 0"):
        for rank in range(4):
            list(reader.packs_of_rank(rank))


@pytest.mark.parametrize("length", [0, -3, 1])
def test_lengths_that_do_not_add_up(out, length):
    edit_rows(out / SHARD, lambda rows: rows[0]["seq_lengths"].__setitem__(0, length))
    reseal(out)
    assert "pack 0: its seq_lengths do not add up to its tokens" in refusal(out)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("sample_ids", [1], "not as many sample_ids as seq_lengths"),
        ("loss_mask", [True], "a loss_mask not as long as its input_ids"),
    ],
)
def test_columns_of_other_lengths(out, name, values, message):
    edit_rows(out / SHARD, lambda rows: rows[1].update({name: values * 99}))
    reseal(out)
    assert f"pack 1 has {message}" in refusal(out)


def test_a_file_of_another_run(out):
    reseal(out, lambda value: value.update(fingerprint="another"))
    assert "the file belongs to another run" in refusal(out)


def test_a_manifest_inside_a_folder_of_that_name(tmp_path, pristine):
    """The folder may be called manifest.json."""
    folder = tmp_path / "manifest.json"
    folder.symlink_to(pristine)
    assert ManifestReader(folder).num_steps == ManifestReader(pristine / "manifest.json").num_steps
