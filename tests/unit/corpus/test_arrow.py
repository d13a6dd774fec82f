"""Arrow IPC files of both kinds, and folders that the datasets library saved."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.corpus import arrow
from hbp_prep.corpus.read import read_unit
from hbp_prep.corpus.scan import scan_corpus
from hbp_prep.corpus.types import SourceSpec
from hbp_prep.errors import ConfigError, DataError

ROWS = [
    {"id": n, "messages": [{"role": "user", "content": "q" * n}, {"role": "assistant", "content": "a"}], "junk": n}
    for n in range(120)
]


def write(path, rows, *, is_stream, batch_rows=7, compression=None):
    table = pa.Table.from_pylist(rows)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    opened = (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(str(path), table.schema, options=options)
    with opened as writer:
        writer.write_table(table, max_chunksize=batch_rows)


def read(path, unit_bytes, split=None):
    source = SourceSpec(name="s", paths=(str(path),), split=split)
    corpus, _ = scan_corpus([source], unit_bytes=unit_bytes)
    return corpus, [item for unit in corpus.units for item in read_unit(corpus.files[unit.file], source, unit)]


@given(
    is_stream=st.booleans(),
    batch_rows=st.integers(1, 200),
    unit_bytes=st.integers(1, 50_000),
    compression=st.sampled_from([None, "lz4", "zstd"]),
)
@settings(deadline=None, max_examples=40)
def test_units_hold_every_row_once_in_order(tmp_path_factory, is_stream, batch_rows, unit_bytes, compression):
    path = tmp_path_factory.mktemp("arrow") / "rows.arrow"
    write(path, ROWS, is_stream=is_stream, batch_rows=batch_rows, compression=compression)
    corpus, results = read(path, unit_bytes)
    assert corpus.files[0].file_format == ("arrow_stream" if is_stream else "arrow_file")
    assert [number for number, *_ in results] == list(range(len(ROWS)))
    assert [result.messages for *_, result in results] == [row["messages"] for row in ROWS]
    if unit_bytes < 1000:
        assert len(corpus.units) > 3


def test_one_large_batch_is_cut(tmp_path):
    write(tmp_path / "rows.arrow", ROWS, is_stream=True, batch_rows=1000)
    assert len(read(tmp_path / "rows.arrow", 1000)[0].units) > 5


@pytest.mark.parametrize("data", [b"", b"ARROW1\0\0", b"junk" * 100])
def test_damaged_files_are_one_sentence(tmp_path, data):
    (tmp_path / "rows.arrow").write_bytes(data)
    with pytest.raises(DataError, match=r"rows\.arrow"):
        read(tmp_path / "rows.arrow", 1000)


def test_a_stream_that_was_cut_short_is_refused(tmp_path):
    path = tmp_path / "rows.arrow"
    write(path, ROWS, is_stream=True)
    path.write_bytes(path.read_bytes()[:-700])
    with pytest.raises(DataError, match="not a valid Arrow IPC file"):
        read(path, 1000)


def test_names_of_columns(tmp_path):
    write(tmp_path / "rows.arrow", ROWS, is_stream=False)
    assert arrow.column_names(str(tmp_path / "rows.arrow"), "arrow_file") == ["id", "messages", "junk"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    folder = tmp_path_factory.mktemp("saved")
    whole = datasets.Dataset.from_list(ROWS)
    whole.save_to_disk(folder / "one", num_shards=3)
    whole.filter(lambda row: row["id"] % 2 == 0).save_to_disk(folder / "even")
    datasets.DatasetDict(train=whole, test=whole.select(range(5))).save_to_disk(folder / "two")
    return folder


def test_saved_folders(saved):
    corpus, results = read(saved / "one", 2000)
    assert len(corpus.files) == 3
    assert [result.messages for *_, result in results] == [row["messages"] for row in ROWS]
    _, results = read(saved / "even", 2000)
    assert [result.original_id for *_, result in results] == [str(number) for number in range(0, 120, 2)]
    assert len(read(saved / "two", 2000, split="test")[1]) == 5


@pytest.mark.parametrize(
    ("name", "split", "what"),
    [
        ("two", None, "has the splits train, test; name one under split"),
        ("two", "tset", "no split 'tset'; did you mean 'test'"),
        ("one", "train", "leave split out"),
    ],
)
def test_splits_that_are_not_there(saved, name, split, what):
    with pytest.raises(ConfigError, match=what):
        read(saved / name, 2000, split=split)


def test_a_damaged_saved_folder(saved, tmp_path):
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "gone.arrow"}]}))
    with pytest.raises(DataError, match="saved dataset cannot be read"):
        read(tmp_path, 2000)
