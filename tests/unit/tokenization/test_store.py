import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hbp_prep.errors import DataError
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization import store
from hbp_prep.tokenization.encoding import EncodedSample
from hbp_prep.tokenization.store import TokenStore, UnitCounts, UnitWriter, read_counts, unit_path


def sample(*ids: int) -> EncodedSample:
    return EncodedSample(np.array(ids, np.int32), np.array([i % 2 == 1 for i in ids], np.bool_))


def write_two_rows(path: Path, fingerprint: str = "f") -> UnitCounts:
    writer = UnitWriter()
    writer.add(3, 0, "a", sample(1, 2, 3))
    writer.add(5, 1, None, RowRejected(Reason.BAD_ROW, "half \udbc0"))
    writer.add(6, 2, "é\udbc0", sample(*range(20)))
    return writer.write(path, fingerprint)


def test_round_trip(tmp_path: Path) -> None:
    counts = write_two_rows(unit_path(tmp_path, 0))
    assert counts == UnitCounts(num_rows=3, num_accepted=2, num_tokens=23, num_loss_tokens=12, num_special_texts=0)
    assert read_counts(unit_path(tmp_path, 0), "f") == counts
    tokens = TokenStore(tmp_path)
    assert tokens.tokens(0, 0).tolist() == [1, 2, 3]
    assert tokens.tokens(0, 1).tolist() == []
    assert tokens.mask(0, 0).tolist() == [True, False, True]
    assert tokens.mask(0, 2).tolist() == [i % 2 == 1 for i in range(20)]
    assert tokens.tokens(0, 2).dtype == np.int32
    assert tokens.mask(0, 2).dtype == np.bool_
    assert tokens.unit(0).original_ids.to_pylist() == ["a", None, "é?"]
    batch = tokens.unit(0).batch
    assert batch.column("row").to_pylist() == [3, 5, 6]
    assert batch.column("reason").to_pylist() == [None, "bad_row", None]
    assert batch.column("detail").to_pylist() == [None, "half ?", None]
    tokens.release()
    assert tokens.tokens(0, 2).tolist() == list(range(20))


def test_empty_unit(tmp_path: Path) -> None:
    assert UnitWriter().write(unit_path(tmp_path, 7), "f").num_rows == 0
    unit = TokenStore(tmp_path).unit(7)
    assert unit.ids.tolist() == []
    assert unit.mask(0, 0).tolist() == []


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_two_rows(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_only_the_same_fingerprint_and_version_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = unit_path(tmp_path, 0)
    assert read_counts(path, "f") is None
    write_two_rows(path)
    assert read_counts(path, "g") is None
    monkeypatch.setattr(store, "STORE_VERSION", 99)
    assert read_counts(path, "f") is None


@pytest.mark.parametrize("size", [0, 10, -20])
def test_damaged_units_are_not_taken_over_and_not_read(tmp_path: Path, size: int) -> None:
    path = unit_path(tmp_path, 0)
    write_two_rows(path)
    data = path.read_bytes()
    path.write_bytes(data[:size])
    assert read_counts(path, "f") is None
    with pytest.raises(DataError, match=r"unit-000000\.arrow: the token store is damaged"):
        TokenStore(tmp_path).tokens(0, 0)


def test_missing_unit_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"unit-000004\.arrow"):
        TokenStore(tmp_path).mask(4, 0)


def test_ids_are_views_of_the_file(tmp_path: Path) -> None:
    write_two_rows(unit_path(tmp_path, 0))
    view = TokenStore(tmp_path).tokens(0, 2)
    assert not view.flags.owndata
    assert not view.flags.writeable
    assert view.tolist() == list(range(20))


def test_open_files_are_bounded_and_views_outlive_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_MAX_OPEN_UNITS", 3)
    for index in range(8):
        write_two_rows(unit_path(tmp_path, index))
    tokens = TokenStore(tmp_path)
    first = tokens.tokens(0, 0)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    for index in range(8):
        assert tokens.tokens(index, 0).tolist() == [1, 2, 3]
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 3
    assert first.tolist() == [1, 2, 3]


def test_released_pages_leave_memory(tmp_path: Path) -> None:
    """Pitfall 25: reading 64 MB and releasing it leaves no 64 MB behind."""
    writer = UnitWriter()
    writer.add(0, 0, None, EncodedSample(np.arange(1 << 24, dtype=np.int32), np.ones(1 << 24, np.bool_)))
    writer.write(unit_path(tmp_path, 0), "f")
    del writer
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc/self/status on this system")

    def file_pages_kib() -> int:
        return int(status.read_text().split("RssFile:")[1].split()[0])

    tokens = TokenStore(tmp_path)
    view = tokens.tokens(0, 0)
    before = file_pages_kib()
    assert int(view.sum(dtype=np.int64)) == (1 << 24) * ((1 << 24) - 1) // 2
    assert file_pages_kib() - before > 60_000
    tokens.release()
    assert file_pages_kib() - before < 10_000


def test_store_is_one_uncompressed_batch(tmp_path: Path) -> None:
    write_two_rows(tmp_path / "a")
    reader = pa.ipc.open_file(pa.memory_map(str(tmp_path / "a")))
    assert reader.num_record_batches == 1
    assert reader.schema.equals(store.SCHEMA)
