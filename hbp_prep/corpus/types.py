"""What the corpus room hands on: sources, files, units of work, conversations."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """One named source of the mixture.

    Attributes:
        name: Unique; appears in every report.
        paths: Files, globs or folders saved by ``datasets``, absolute, or fsspec addresses (``s3://...``), variables
            already expanded. Each must match at least one file.
        dataset: Instead of paths: the name of a dataset on the Hugging Face hub.
        subset: The hub dataset's configuration, where it has several.
        split: Which split of a dataset (by name or saved folder) is read, where it has several.
        format: Row format's name, or ``"auto"``: detected for each file from its first rows.
        columns: Renames columns of the row before its format is read: {name the format expects: name in the file};
            ``role`` and ``content`` rename the keys of messages.
        roles: Further names of roles: {name in the file: system, user, assistant or tool}.
        where: A polars SQL expression over the file's columns; rows for which it is not true are left out.
        weight: Times that every row is used: 0.5 takes a random half, 2 uses each row twice, 1.5 once or twice.
        limit: At most this many samples (after the weight), chosen at random with the seed; ``None``: no limit.
    """

    name: str
    paths: tuple[str, ...]
    dataset: str | None = None
    subset: str | None = None
    split: str | None = None
    format: str = "auto"
    columns: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    weight: float = 1.0
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class FileSignature:
    """What the file system says of a file; equal signatures are taken for equal bytes.

    ``version`` is what a remote store says instead of times (etag, generation, time of change).
    """

    size_bytes: int
    mtime_ns: int = 0
    ctime_ns: int = 0
    inode: int = 0
    version: str = ""

    @classmethod
    def of(cls, status: os.stat_result) -> "FileSignature":
        """From what ``os.stat`` gives."""
        return cls(
            size_bytes=status.st_size, mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns, inode=status.st_ino
        )


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """One input file, scanned.

    Attributes:
        source: Index of its source.
        path: As users named it (absolute, or an address).
        file_format: ``jsonl``, ``json`` (one array), ``parquet``, or Arrow IPC (``arrow_file``, ``arrow_stream``).
        row_format: How its rows are read (never ``auto``).
        size_bytes, sha256: Of its content, decompressed.
        num_rows: Rows in it, blank lines not counted.
        spooled: Where the content lies on this machine if ``path`` is remote or compressed.
        signature: When it was scanned; a file of another one is refused. ``None``: only its size is compared.
    """

    source: int
    path: str
    file_format: str
    row_format: str
    size_bytes: int
    sha256: str
    num_rows: int
    signature: FileSignature | None = None
    spooled: str | None = None

    @property
    def is_columnar(self) -> bool:
        """Whether single columns can be read (Parquet and Arrow)."""
        return self.file_format not in ("jsonl", "json")

    @property
    def local_path(self) -> str:
        """The plain file that is read."""
        return self.spooled or self.path


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A slice of one file: the unit of work, of resume and of the token store. Cut by content alone, never by workers.

    Attributes:
        index: Position in the corpus; sample ids follow the units' order.
        file: Index into ``Corpus.files``.
        start, stop: Byte range for ``jsonl`` and ``json``; row range for Parquet and Arrow.
        first_row: Number in the file of the first row (for ``jsonl``: its line number, from 0).
        first_ordinal: Number of the first row among its *source*'s rows, over all its files, blank lines not counted.
        num_rows: Rows in the unit, blank lines not counted.
    """

    index: int
    file: int
    start: int
    stop: int
    first_row: int
    first_ordinal: int
    num_rows: int


class LeftOut(IntEnum):
    """Why the sieve leaves a row out."""

    NOT = 0
    FILTERED = 1
    DUPLICATE = 2
    UNJUDGED = 3  # the filter cannot be evaluated on it: a fault of the row


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The scanned corpus: everything but the rows themselves.

    Attributes:
        sieves: For each source, ``uint8[rows of the source]``: which rows are left out and why (values of
            :class:`LeftOut`); ``None``: none is. Empty before the corpus is sieved.
    """

    sources: tuple[SourceSpec, ...]
    files: tuple[CorpusFile, ...]
    units: tuple[Unit, ...]
    sieves: tuple[NDArray[np.uint8] | None, ...] = ()

    def sieve_of(self, source: int) -> NDArray[np.uint8] | None:
        """Which rows of one source are left out, or ``None``."""
        return self.sieves[source] if self.sieves else None

    def num_rows_of_source(self, source: int) -> int:
        """Rows of one source over all its files."""
        return sum(file.num_rows for file in self.files if file.source == source)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One row as a chat, or as plain text.

    Attributes:
        messages: Each has ``role`` (system, user, assistant, tool) and ``content`` (a string); other keys that a
            template may read (``tool_calls``, ``name``, ``reasoning_content``) are kept.
        original_id: The row's own id as a string, or ``None``.
        template_kwargs: Further variables for the template (``tools``, ``chat_template_kwargs``).
        text: A document for continued pre-training, without a chat template; ``messages`` is empty then.
    """

    messages: list[dict[str, Any]]
    original_id: str | None
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    text: str | None = None
