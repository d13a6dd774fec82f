"""The files that a source names: by paths, globs, addresses, saved folders or a dataset's name."""

import glob
import os
from difflib import get_close_matches
from pathlib import Path

from hbp_prep.corpus.hub import hub_files, is_saved_dataset, saved_files
from hbp_prep.corpus.remote import is_remote, matches
from hbp_prep.corpus.types import SourceSpec
from hbp_prep.errors import ConfigError, DataError
from hbp_prep.files import is_unicode
from hbp_prep.suggest import did_you_mean

# What a file's suffix says. ".json" is one array or JSON lines, Arrow a file or a stream; the first bytes decide.
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
# What may come behind the suffix of a JSON file.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def source_files(source: SourceSpec) -> list[str]:
    """The source's files: paths in the order given, the matches of each glob sorted.

    Raises:
        DataError: a path or glob matches no file, or a file's name is not UTF-8.
        ConfigError: a file is named twice, a path is a folder, or a file's suffix or a dataset's split is not known.
    """
    if source.dataset is not None:
        return hub_files(source.dataset, source.subset, source.split)
    named_by: dict[str, str] = {}
    files: list[str] = []
    for pattern in source.paths:
        for path in _matches(source, pattern):
            _check_name(source, path)
            real = path if is_remote(path) else os.path.realpath(path)
            if real in named_by:
                raise ConfigError(
                    f"source {source.name!r}: {path} is named twice (by {named_by[real]!r} and {pattern!r}); "
                    "name each file once, and use weight to repeat rows"
                )
            named_by[real] = pattern
            files.append(path)
    if source.split is not None and not any(map(is_saved_dataset, source.paths)):
        raise ConfigError(
            f"source {source.name!r}: split is {source.split!r}, but its paths name files; only datasets have splits"
        )
    return files


def compression_of(path: str) -> str | None:
    """``gzip``, ``zstd`` or ``None``, by the suffix."""
    return COMPRESSIONS.get(Path(path).suffix.lower())


def file_format_of_suffix(path: str) -> str:
    """``jsonl``, ``json``, ``parquet`` or ``arrow``; the suffix must be a known one."""
    return SUFFIXES[_suffix(path)]


def _suffix(path: str) -> str:
    """The suffix that tells the format: the one before ``.gz`` or ``.zst``."""
    name = Path(path)
    return (Path(name.stem) if compression_of(path) else name).suffix.lower()


def _check_name(source: SourceSpec, path: str) -> None:
    if not is_unicode(path):
        raise DataError(f"source {source.name!r}: the file name {path!a} is not UTF-8; rename the file")
    suffix = _suffix(path)
    if suffix not in SUFFIXES:
        unknown = f"the suffix {suffix!r} is no known file format" if suffix else "no suffix tells the file's format"
        raise ConfigError(f"source {source.name!r}: {path}: {unknown}{did_you_mean(suffix, SUFFIXES)}")
    if compression_of(path) and not SUFFIXES[suffix].startswith("json"):
        raise ConfigError(
            f"source {source.name!r}: {path}: only JSON files are read compressed; unpack it (Parquet and Arrow "
            "compress inside)"
        )


def _matches(source: SourceSpec, pattern: str) -> list[str]:
    if is_remote(pattern):
        found = matches(pattern)
        if not found:
            raise DataError(f"source {source.name!r}: {pattern} matches no file")
        return found
    if os.path.isfile(pattern):
        return [pattern]
    if os.path.isdir(pattern) and is_saved_dataset(pattern):
        return saved_files(pattern, source.split)
    if os.path.isdir(pattern):
        raise ConfigError(
            f"source {source.name!r}: {pattern} is a folder; name its files, for example {Path(pattern) / '*.jsonl'}"
        )
    found = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
    if not found and os.path.exists(pattern):
        raise ConfigError(f"source {source.name!r}: {pattern} is neither a file nor a folder; copy its rows to a file")
    if not found:
        raise DataError(f"source {source.name!r}: {pattern} matches no file{_nearest(pattern)}")
    return found


def _nearest(pattern: str) -> str:
    """What exists on the way to ``pattern``: a name much like the missing one, or the last folder that exists."""
    if os.path.islink(pattern):
        return f"; it is a link to {os.readlink(pattern)}, which does not exist"
    parent, missing = Path(pattern).parent, Path(pattern).name
    while not parent.is_dir() and parent != parent.parent:
        parent, missing = parent.parent, parent.name
    try:
        names = sorted(os.listdir(parent))
    except OSError as error:
        return f"; the folder {parent} cannot be read ({error.strerror})"
    near = get_close_matches(missing, names, n=1)
    if near:
        return f"; did you mean {parent / near[0]}?"
    return f"; the folder {parent} exists, but nothing in it is called {missing!r}"
