import os
import re
from pathlib import Path

import pytest

from hbp_prep.corpus.paths import source_files
from hbp_prep.corpus.types import SourceSpec
from hbp_prep.errors import ConfigError, DataError


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    for name in ["b.jsonl", "a.jsonl", "deep/er/c.parquet", "deep/d.json", "notes.txt", "odd[1].jsonl"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def files(corpora: Path, *patterns: str) -> list[str]:
    source = SourceSpec(name="mix", paths=tuple(str(corpora / pattern) for pattern in patterns))
    return [os.path.relpath(path, corpora) for path in source_files(source)]


def test_paths_keep_their_order_and_globs_are_sorted(corpora):
    assert files(corpora, "deep/d.json", "[ab].jsonl") == ["deep/d.json", "a.jsonl", "b.jsonl"]
    assert files(corpora, "deep/**/*.*") == ["deep/d.json", "deep/er/c.parquet"]


def test_a_file_whose_name_looks_like_a_glob_is_itself(corpora):
    assert files(corpora, "odd[1].jsonl") == ["odd[1].jsonl"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a.jsnl", "source 'mix': .*/a.jsnl matches no file; did you mean .*/a.jsonl?"),
        ("dep/d.json", "dep/d.json matches no file; did you mean .*/deep?"),
        ("deep/*.jsonl", "matches no file; .*"),
        ("zzzz/*.jsonl", "the folder .* exists, but nothing in it is called 'zzzz'"),
    ],
)
def test_missing_file_is_named_with_what_is_near(corpora, pattern, message):
    with pytest.raises(DataError, match=message):
        files(corpora, pattern)


def test_each_glob_must_match(corpora):
    with pytest.raises(DataError, match="nothing"):
        files(corpora, "a.jsonl", "qqqq*.parquet")


@pytest.mark.parametrize("pattern", ["notes.txt", "*"])
def test_unknown_suffix(corpora, pattern):
    with pytest.raises(ConfigError, match=r"notes\.txt: the suffix '\.txt' is no known file format; known: \.arrow, "):
        files(corpora, pattern)


def test_a_name_without_a_suffix_is_said_to_have_none(corpora):
    (corpora / "rows.gz").touch()
    with pytest.raises(ConfigError, match=r"rows\.gz: no suffix tells the file's format; known: \.arrow, "):
        files(corpora, "rows.gz")


def test_what_is_neither_a_file_nor_a_folder_is_not_called_missing(corpora):
    os.mkfifo(corpora / "rows.jsonl")
    with pytest.raises(ConfigError, match=r"rows\.jsonl is neither a file nor a folder"):
        files(corpora, "rows.jsonl")


def test_folder_is_refused_with_a_glob_to_use(corpora):
    with pytest.raises(ConfigError, match=re.escape("deep/*.jsonl")):
        files(corpora, "deep")


def test_same_file_twice_in_one_source(corpora):
    os.symlink(corpora / "a.jsonl", corpora / "link.jsonl")
    for patterns in [("a.jsonl", "?.jsonl"), ("a.jsonl", "a.jsonl"), ("a.jsonl", "link.jsonl")]:
        with pytest.raises(ConfigError, match="is named twice"):
            files(corpora, *patterns)


def test_a_link_to_nothing_says_so(tmp_path):
    (tmp_path / "rows.jsonl").symlink_to("gone.jsonl")
    with pytest.raises(DataError, match=r"it is a link to gone\.jsonl, which does not exist"):
        source_files(SourceSpec(name="s", paths=(str(tmp_path / "rows.jsonl"),)))
