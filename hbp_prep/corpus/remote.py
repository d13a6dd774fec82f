"""Files at fsspec addresses (``s3://``, ``gs://``, ``hf://``, ``memory://``, ...): which there are, and their bytes.

Everything goes through ``fsspec``; the package of a protocol (``s3fs``, ``gcsfs``, ...) is imported by it when first
needed. Credentials and endpoints come from that package's own environment variables and files, never from a recipe.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import fsspec
from fsspec.core import url_to_fs

from hbp_prep.corpus.types import FileSignature
from hbp_prep.errors import ConfigError, DataError
from hbp_prep.files import read_error

# What a store may say of a file's version, in the words of the different file systems.
_VERSION_KEYS = (
    "ETag",
    "etag",
    "generation",
    "md5Hash",
    "blob_id",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "created",
)
# Failures that backends raise without an OSError around them, by the module that is loaded when they are used.
_BACKEND_ERRORS = {"botocore.exceptions": "BotoCoreError", "aiohttp": "ClientError", "gcsfs.retry": "HttpError"}


def is_remote(path: str) -> bool:
    """Whether ``path`` is an address with a protocol."""
    return "://" in path


def lives_in_this_process(address: str) -> bool:
    """Whether other processes cannot see the file (``memory://``)."""
    return address.startswith("memory://")


def matches(pattern: str) -> list[str]:
    """Addresses of the files that an address or a glob names, sorted; empty if there are none.

    Raises:
        ConfigError: the protocol is unknown, or its package is not installed.
        DataError: the store cannot be reached or refuses.
    """
    with remote_errors(pattern):
        file_system, path = url_to_fs(pattern)
        if not set("*?[") & set(path):
            return [pattern] if file_system.isfile(path) else []
        entries = file_system.glob(path, detail=True)
        found = sorted(name for name, info in entries.items() if info["type"] == "file")
        return [file_system.unstrip_protocol(name) for name in found]


def signature(address: str) -> FileSignature:
    """Size and version of a remote file; the version is empty where the store says nothing of it.

    Raises:
        DataError, ConfigError: as :func:`matches`.
    """
    with remote_errors(address):
        file_system, path = url_to_fs(address)
        file_system.invalidate_cache()
        info: dict[str, Any] = file_system.info(path)
        version = ", ".join(f"{key} {info[key]}" for key in _VERSION_KEYS if info.get(key) is not None)
        return FileSignature(size_bytes=int(info["size"] or 0), version=version)


@contextmanager
def open_remote(address: str) -> Iterator[BinaryIO]:
    """The file's bytes, read ahead in blocks.

    Raises:
        DataError, ConfigError: as :func:`matches`, also while it is read.
    """
    with remote_errors(address), fsspec.open(address, "rb") as handle:
        yield handle


@contextmanager
def remote_errors(address: str) -> Iterator[None]:
    """Turn what fsspec and its backends raise into one sentence."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"{address}: its protocol needs a package that is not installed ({error})") from error
    except ValueError as error:
        raise ConfigError(f"{address}: no usable address ({error})") from error
    except OSError as error:
        raise read_error(address, error) from error
    except _backend_errors() as error:
        raise DataError(f"{address}: cannot be read ({error}); check credentials and endpoint") from error


def _backend_errors() -> tuple[type[Exception], ...]:
    """Python asks for them only when something was raised: the backend is loaded by then."""
    return tuple(
        getattr(sys.modules[module], name) for module, name in _BACKEND_ERRORS.items() if module in sys.modules
    )
