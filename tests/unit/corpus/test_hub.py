"""Datasets by name: which Arrow files they are, and one sentence where there are none. Nothing is downloaded."""

import datasets
import pytest

from hbp_prep.corpus.paths import source_files
from hbp_prep.corpus.types import SourceSpec
from hbp_prep.errors import ConfigError, DataError


@pytest.fixture
def on_the_hub(tmp_path, monkeypatch):
    """A dataset of two splits, with the files that the library's cache would have."""
    datasets.DatasetDict(
        {
            split: datasets.Dataset.from_list([{"text": f"{split} {number}"} for number in range(3)])
            for split in ("train", "test")
        }
    ).save_to_disk(str(tmp_path))
    found = datasets.load_from_disk(str(tmp_path))

    def load_dataset(name: str, subset: str | None):
        if name != "team/set":
            raise datasets.exceptions.DatasetNotFoundError(f"Dataset '{name}' doesn't exist on the Hub\nmore")
        if subset not in (None, "small"):
            raise ValueError(f"BuilderConfig '{subset}' not found. Available: ['small']")
        return found

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return tmp_path


def files(name: str = "team/set", subset: str | None = None, split: str | None = "train") -> list[str]:
    return source_files(SourceSpec(name="s", paths=(), dataset=name, subset=subset, split=split))


def test_the_files_of_one_split(on_the_hub):
    assert files() == [str(path) for path in sorted(on_the_hub.glob("train/*.arrow"))]
    assert files(subset="small", split="test") == [str(path) for path in sorted(on_the_hub.glob("test/*.arrow"))]


@pytest.mark.parametrize(
    ("arguments", "error", "what"),
    [
        ({"split": None}, ConfigError, "has the splits train, test; name one under split"),
        ({"split": "tset"}, ConfigError, "has no split 'tset'; did you mean 'test'"),
        ({"subset": "large"}, ConfigError, "BuilderConfig 'large' not found"),
        (
            {"name": "team/other"},
            DataError,
            r"cannot be had from the hub \(Dataset 'team/other' doesn't exist on the Hub\)",
        ),
    ],
)
def test_what_is_not_there(on_the_hub, arguments, error, what):
    with pytest.raises(error, match=what):
        files(**arguments)


def test_no_connection(monkeypatch):
    def load_dataset(name: str, subset: str | None):
        raise ConnectionError("Couldn't reach 'team/set' on the Hub (LocalEntryNotFoundError)")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DataError, match="cannot be had from the hub"):
        files()
