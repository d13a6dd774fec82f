"""The files that a source's paths and globs name."""

import glob
import os
from difflib import get_close_matches
from pathlib import Path

from hbp_prep.corpus.types import SourceSpec
from hbp_prep.errors import ConfigError, DataError
from hbp_prep.files import is_unicode
from hbp_prep.suggest import did_you_mean

# What a file's suffix says. ".json" is one array or JSON lines; its first byte decides.
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet"}


def source_files(source: SourceSpec) -> list[str]:
    """The source's files: paths in the order given, the matches of each glob sorted.

    Raises:
        DataError: a path or glob matches no file, or a file's name is not UTF-8.
        ConfigError: a file is named twice, a path is a folder, or a file's suffix is not known.
    """
    named_by: dict[str, str] = {}
    files: list[str] = []
    for pattern in source.paths:
        for path in _matches(source, pattern):
            suffix = Path(path).suffix.lower()
            if not is_unicode(path):
                raise DataError(f"source {source.name!r}: the file name {path!a} is not UTF-8; rename the file")
            if suffix not in SUFFIXES:
                raise ConfigError(
                    f"source {source.name!r}: {path}: the suffix {suffix!r} is no known file format"
                    f"{did_you_mean(suffix, SUFFIXES)}"
                )
            real = os.path.realpath(path)
            if real in named_by:
                raise ConfigError(
                    f"source {source.name!r}: {path} is named twice (by {named_by[real]!r} and {pattern!r}); "
                    "name each file once, and use weight to repeat rows"
                )
            named_by[real] = pattern
            files.append(path)
    return files


def file_format_of_suffix(path: str) -> str:
    """``jsonl``, ``json`` or ``parquet``; the suffix must be a known one."""
    return SUFFIXES[Path(path).suffix.lower()]


def _matches(source: SourceSpec, pattern: str) -> list[str]:
    if os.path.isfile(pattern):
        return [pattern]
    if os.path.isdir(pattern):
        raise ConfigError(
            f"source {source.name!r}: {pattern} is a folder; name its files, for example {Path(pattern) / '*.jsonl'}"
        )
    found = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
    if not found:
        raise DataError(f"source {source.name!r}: {pattern} matches no file{_nearest(pattern)}")
    return found


def _nearest(pattern: str) -> str:
    """What exists on the way to ``pattern``: a name much like the missing one, or the last folder that exists."""
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
