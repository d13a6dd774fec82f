"""Sharding and finishing: same bytes whoever writes, whatever broke before; damage of the store is told."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hbp_prep.engines.local import LocalEngine
from hbp_prep.errors import DataError, ManifestError
from hbp_prep.manifest.verify import verify
from hbp_prep.planning.persist import load_plan, save_plan
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.sharding import shards as shards_module
from hbp_prep.sharding.shards import write_shards
from hbp_prep.tokenization.encoding import EncodedSample
from hbp_prep.tokenization.store import UnitWriter, unit_path
from hbp_prep.tokenization.table import SampleTable
from tests.unit.manifest.forging import edit_rows
from tests.unit.sharding.building import FINGERPRINT, Stopped, Work, contents, prepare, stopped_at_commit, write


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    return prepare(tmp_path_factory.mktemp("work"), seed=5, num_rows=40)


@pytest.fixture(scope="module")
def unbroken(work: Work, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("out")
    write(out, work)
    verify(out)
    return contents(out)


def only_shards(out, work, **changes):
    options = {"fingerprint": FINGERPRINT, "shard_tokens": 600} | changes
    return write_shards(
        out, plan_folder=work.plan_folder, store_folder=work.store_folder, table_path=work.table_path, **options
    )


def test_same_bytes_from_processes(work, unbroken, tmp_path):
    write(tmp_path / "out", work, map_tasks=LocalEngine(2).map)
    assert contents(tmp_path / "out") == unbroken


def test_same_bytes_after_a_stop_at_any_commit(work, unbroken, tmp_path):
    num_commits = 0
    while True:
        out = tmp_path / str(num_commits)
        try:
            with stopped_at_commit(num_commits):
                write(out, work)
        except Stopped:
            assert not (out / "manifest.json").exists()
            (out / "shards" / "left.arrow.1.tmp").parent.mkdir(parents=True, exist_ok=True)
            (out / "shards" / "left.arrow.1.tmp").write_bytes(b"part")
            (out / "samples.arrow.1.tmp").write_bytes(b"part")
            write(out, work)
            assert contents(out) == unbroken
            num_commits += 1
        else:
            break
    assert num_commits == len(unbroken) + sum(name.startswith("shards/") for name in unbroken)  # and records


def test_whole_shards_are_kept_and_others_written_again(work, unbroken, tmp_path):
    first = only_shards(tmp_path, work)
    path = tmp_path / first[0].entry.path
    kept, times = os.stat(path).st_ino, os.stat(path).st_mtime_ns
    os.truncate(tmp_path / first[1].entry.path, 300)
    (tmp_path / first[2].entry.path).write_bytes((tmp_path / first[0].entry.path).read_bytes())
    (tmp_path / "shards" / "8K").mkdir()
    (tmp_path / "shards" / "8K" / "part-00000.arrow").write_bytes(b"of an earlier plan")
    assert only_shards(tmp_path, work) == first
    assert (os.stat(path).st_ino, os.stat(path).st_mtime_ns) == (kept, times)
    found = contents(tmp_path)
    assert found == {name: data for name, data in unbroken.items() if name.startswith("shards/")}
    assert not (tmp_path / "shards" / "8K").exists()


def test_a_shard_with_one_changed_bit_is_written_again(work, tmp_path):
    first = only_shards(tmp_path, work)
    data = bytearray((tmp_path / first[1].entry.path).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / first[1].entry.path).write_bytes(data)
    assert only_shards(tmp_path, work) == first


def test_shards_of_another_fingerprint_or_size_are_written_again(work, tmp_path):
    only_shards(tmp_path, work, fingerprint="another")
    assert only_shards(tmp_path, work) == only_shards(tmp_path / "fresh", work)
    assert contents(tmp_path / "shards") == contents(tmp_path / "fresh" / "shards")
    larger = only_shards(tmp_path, work, shard_tokens=10**6)
    assert [shard.entry.path for shard in larger] == ["shards/L64/part-00000.arrow", "shards/L256/part-00000.arrow"]


@pytest.mark.parametrize("column", ["pack_id", "num_tokens"])
def test_a_shard_with_as_many_other_packs_is_written_again(work, tmp_path, column):
    first = only_shards(tmp_path, work)
    edit_rows(tmp_path / first[1].entry.path, lambda rows: [row.update({column: row[column] + 1}) for row in rows])
    assert only_shards(tmp_path, work) == first


def test_strays_in_the_schedule_go(work, unbroken, tmp_path):
    (tmp_path / "schedule").mkdir()
    (tmp_path / "schedule" / "old.arrow").write_bytes(b"x")
    write(tmp_path, work)
    assert contents(tmp_path) == unbroken


def test_an_old_manifest_goes_first(work, tmp_path):
    """While shards are being replaced the folder must not look finished."""
    write(tmp_path, work)
    with pytest.raises(Stopped), stopped_at_commit(0):
        only_shards(tmp_path, work, fingerprint="another")
    assert not (tmp_path / "manifest.json").exists()


def test_batches_are_cut_inside_a_shard(work, tmp_path, monkeypatch):
    monkeypatch.setattr(shards_module, "BATCH_TOKENS", 130)
    written = only_shards(tmp_path, work)
    for shard in written:
        reader = pa.ipc.open_file((tmp_path / shard.entry.path).read_bytes())
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        tokens = [sum(batch.column("num_tokens").to_pylist()) for batch in batches]
        assert sum(tokens) == shard.entry.num_tokens
        assert all(total <= 130 or batch.num_rows == 1 for total, batch in zip(tokens, batches, strict=True))
    assert any(pa.ipc.open_file((tmp_path / shard.entry.path).read_bytes()).num_record_batches > 1 for shard in written)


def rewrite_unit(work: Work, change) -> None:
    """Write unit 0 of the store again with ``change(index, ids, mask)`` applied to its first sample."""
    table = SampleTable.load(work.table_path)
    writer = UnitWriter()
    indices = {int(index): sample for sample, index in enumerate(table.index.tolist()) if table.unit[sample] == 0}
    for index in range(max(indices) + 1):
        if index not in indices:
            writer.add(index, index, None, RowRejected(Reason.BAD_ROLE, ""))
            continue
        ids, mask = work.input_ids[indices[index]], work.loss_masks[indices[index]]
        if index == min(indices):
            ids, mask = change(ids, mask)
        writer.add(index, index, None, EncodedSample(input_ids=ids, loss_mask=mask))
    writer.write(unit_path(work.store_folder, 0), FINGERPRINT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids, mask: (ids[:-1], mask[:-1]), "the sample table says"),
        (lambda ids, mask: (ids, np.zeros_like(mask)), "loss tokens in the token store"),
    ],
)
def test_a_store_that_contradicts_the_table(tmp_path, change, message):
    work = prepare(tmp_path / "work", seed=8, num_rows=20)
    rewrite_unit(work, change)
    with pytest.raises(DataError, match=message):
        only_shards(tmp_path / "out", work)
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_a_group_name_cannot_leave_the_folder(tmp_path):
    work = prepare(tmp_path / "work", seed=8, num_rows=20)
    plan = load_plan(work.plan_folder)
    for group in plan.spec.groups:
        object.__setattr__(group, "name", "../../x")
    save_plan(plan, work.plan_folder)
    with pytest.raises(ManifestError, match="not a plain relative path"):
        only_shards(tmp_path / "out", work)


@pytest.mark.parametrize("split", [False, True])
def test_shards_hold_the_tokens_of_cut_samples(tmp_path, split):
    work = prepare(tmp_path / "work", seed=2, num_rows=40, repeats=2, longest=20, split=split)
    write(tmp_path / "out", work)
    verify(tmp_path / "out")
    found = {}
    for path in (tmp_path / "out" / "shards").rglob("*.arrow"):
        for pack in pa.ipc.open_file(path.read_bytes()).read_all().to_pylist():
            stops = np.cumsum(pack["seq_lengths"]).tolist()
            for sample, start, stop in zip(pack["sample_ids"], [0, *stops], stops, strict=False):
                found[sample] = (pack["input_ids"][start:stop], pack["loss_mask"][start:stop])
    assert len(found) == len(work.input_ids)
    for sample, (ids, mask) in found.items():
        assert ids == work.input_ids[sample].tolist()
        assert mask == work.loss_masks[sample].tolist()
    table = SampleTable.load(work.table_path)
    assert bool((table.first_token > 0).any()) == split


@pytest.mark.parametrize("split", [False, True])
def test_where_samples_came_from(tmp_path, split):
    work = prepare(tmp_path / "work", seed=2, num_rows=30, repeats=2, longest=40, split=split)
    write(tmp_path / "out", work)
    table = SampleTable.load(work.table_path)
    rows = pa.ipc.open_file((tmp_path / "out" / "samples.arrow").read_bytes()).read_all().to_pylist()
    assert [row["original_id"] for row in rows] == work.original_ids
    assert [row["num_tokens"] for row in rows] == [len(ids) for ids in work.input_ids]
    assert [row["row"] for row in rows] == table.row.tolist()
    assert [row["truncated_from"] or 0 for row in rows] == table.truncated_from.tolist()
    assert {(row["source"], row["file"]) for row in rows} == {
        ("chats", "/data/a.jsonl"),
        ("chats", "/data/b.jsonl"),
        ("books", "/data/long.parquet"),
    }
    assert any(row["truncated_from"] for row in rows)


def test_a_damaged_list_of_rejected_rows(tmp_path):
    work = prepare(tmp_path / "work", seed=2, num_rows=30)
    Path(work.rejected_path).write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"rejected\.arrow: missing or damaged"):
        write(tmp_path / "out", work)
    assert not (tmp_path / "out" / "manifest.json").exists()
