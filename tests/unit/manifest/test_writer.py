"""Shards and tables: derived columns, checksums of what was written, whole files or none."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest

from hbp_prep.manifest.tables import REJECTED_SCHEMA
from hbp_prep.manifest.writer import PackBatch, ShardWriter, write_table


def batch(pack_ids, lengths_of_packs, first_id=0):
    lengths = [length for pack in lengths_of_packs for length in pack]
    num_tokens = sum(lengths)
    return PackBatch(
        pack_ids=np.array(pack_ids, np.int64),
        segment_offsets=np.cumsum([0, *map(len, lengths_of_packs)]),
        sample_ids=np.arange(len(lengths)),
        seq_lengths=np.array(lengths, np.int32),
        input_ids=np.arange(first_id, first_id + num_tokens, dtype=np.int32),
        loss_mask=np.arange(num_tokens) % 3 == 1,
    )


def test_columns_by_hand(tmp_path):
    path = tmp_path / "a" / "part.arrow"
    with ShardWriter(path, group="16K", fingerprint="f") as writer:
        writer.write(batch([4, 5], [[3, 2], [4]]))
        writer.write(batch([6], [[1]], first_id=50))
    reader = pa.ipc.open_file(path.read_bytes())
    rows = reader.read_all().to_pylist()
    assert rows[0] == {
        "pack_id": 4,
        "input_ids": [0, 1, 2, 3, 4],
        "loss_mask": [False, True, False, False, True],
        "seq_lengths": [3, 2],
        "sample_ids": [0, 1],
        "num_tokens": 5,
        "num_loss_tokens": 2,
        "attention_cost": 13,
    }
    assert [row["attention_cost"] for row in rows] == [13, 16, 1]
    assert [row["input_ids"] for row in rows[1:]] == [[5, 6, 7, 8], [50]]
    assert reader.schema.metadata == {
        b"hbp.format": b"hbp-manifest",
        b"hbp.format_version": b"1",
        b"hbp.fingerprint": b"f",
        b"hbp.group": b"16K",
    }
    data = path.read_bytes()
    assert (writer.written.rows, writer.written.bytes) == (3, len(data))
    assert writer.written.sha256 == hashlib.sha256(data).hexdigest()


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), ShardWriter(tmp_path / "part.arrow", group="g", fingerprint="f") as writer:
        writer.write(batch([0], [[2]]))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(AssertionError):
        _ = writer.written


def test_buffers_may_be_used_again(tmp_path):
    packs = batch([0], [[5]])
    with ShardWriter(tmp_path / "part.arrow", group="g", fingerprint="f") as writer:
        writer.write(packs)
        packs.input_ids[:] = 9
        packs.loss_mask[:] = True
    row = pa.ipc.open_file((tmp_path / "part.arrow").read_bytes()).read_all().to_pylist()[0]
    assert row["input_ids"] == [0, 1, 2, 3, 4]
    assert row["num_loss_tokens"] == sum(row["loss_mask"]) == 2


def test_attention_cost_beyond_32_bits(tmp_path):
    length = 100_000
    with ShardWriter(tmp_path / "part.arrow", group="g", fingerprint="f") as writer:
        writer.write(batch([0], [[length]]))
    row = pa.ipc.open_file((tmp_path / "part.arrow").read_bytes()).read_all().column("attention_cost").to_pylist()
    assert row == [length**2]


def test_an_empty_table(tmp_path):
    written = write_table(tmp_path / "t.arrow", REJECTED_SCHEMA, [])
    assert written.rows == 0
    assert pa.ipc.open_file((tmp_path / "t.arrow").read_bytes()).read_all().num_rows == 0
