"""Datasets of the Hugging Face library: folders written by ``save_to_disk``, and names on the hub.

Both are Arrow stream files in the end (a hub dataset in the library's own cache), which are then read as such. The
library is imported only where a source names a dataset: it takes seconds and hundreds of megabytes.
"""

import os
from typing import Any

from hbp_prep.errors import ConfigError, DataError, first_line
from hbp_prep.suggest import did_you_mean

_MARKS = ("state.json", "dataset_dict.json")


def is_saved_dataset(path: str) -> bool:
    """Whether a folder was written by ``save_to_disk``."""
    return any(os.path.isfile(os.path.join(path, mark)) for mark in _MARKS)


def saved_files(path: str, split: str | None) -> list[str]:
    """The Arrow files of one split of a saved dataset.

    Raises:
        ConfigError: there is no such split, or none is named where there are several.
        DataError: the folder is damaged.
    """
    from datasets import load_from_disk

    try:
        found = load_from_disk(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: the saved dataset cannot be read ({error})") from error
    return _files_of(found, path, split)


def hub_files(name: str, subset: str | None, split: str | None) -> list[str]:
    """The Arrow files of one split of a dataset on the hub, downloaded into the library's cache if need be.

    Raises:
        ConfigError: there is no such split or subset.
        DataError: there is no such dataset, or the hub cannot be reached.
    """
    from datasets import load_dataset

    try:
        found = load_dataset(name, subset)
    except ValueError as error:
        raise ConfigError(f"dataset {name!r}: {first_line(error)}") from error
    except (OSError, RuntimeError) as error:
        raise DataError(f"dataset {name!r} cannot be had from the hub ({first_line(error)})") from error
    return _files_of(found, f"dataset {name!r}", split)


def _files_of(found: Any, what: str, split: str | None) -> list[str]:
    splits: dict[str, Any] = dict(found) if isinstance(found, dict) else {}
    if splits:
        if split is None and len(splits) > 1:
            raise ConfigError(f"{what} has the splits {', '.join(splits)}; name one under split")
        if split is not None and split not in splits:
            raise ConfigError(f"{what} has no split {split!r}{did_you_mean(split, splits)}")
        found = splits[split or next(iter(splits))]
    elif split is not None and split != str(found.split):
        raise ConfigError(f"{what} has no split {split!r}; it is one dataset without splits (leave split out)")
    files = [os.path.abspath(entry["filename"]) for entry in found.cache_files]
    if not files:
        raise DataError(f"{what} has no rows")
    return files
