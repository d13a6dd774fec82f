"""What the corpus room hands on: sources, files, units of work, conversations."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """One named source of the mixture.

    Attributes:
        name: Unique; appears in every report.
        paths: Files or globs, absolute, variables already expanded. Each must match at least one file.
        format: Row format's name, or ``"auto"``: detected for each file from its first rows.
        columns: Renames columns of the row before its format is read: {name the format expects: name in the file}.
        weight: Times that every row is used: 0.5 takes a random half, 2 uses each row twice, 1.5 once or twice.
        limit: At most this many samples (after the weight), chosen at random with the seed; ``None``: no limit.
    """

    name: str
    paths: tuple[str, ...]
    format: str = "auto"
    columns: Mapping[str, str] = field(default_factory=dict)
    weight: float = 1.0
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class FileSignature:
    """What the file system says of a file; equal signatures are taken for equal bytes."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int

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
        path: As users named it (absolute).
        file_format: ``jsonl``, ``json`` (one array) or ``parquet``.
        row_format: How its rows are read (never ``auto``).
        sha256: Of its bytes.
        num_rows: Rows in it, blank lines not counted.
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


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A slice of one file: the unit of work, of resume and of the token store. Cut by content alone, never by workers.

    Attributes:
        index: Position in the corpus; sample ids follow the units' order.
        file: Index into ``Corpus.files``.
        start, stop: Byte range for ``jsonl`` and ``json``; row range for ``parquet``.
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


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The scanned corpus: everything but the rows themselves."""

    sources: tuple[SourceSpec, ...]
    files: tuple[CorpusFile, ...]
    units: tuple[Unit, ...]

    def num_rows_of_source(self, source: int) -> int:
        """Rows of one source over all its files."""
        return sum(file.num_rows for file in self.files if file.source == source)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One row as a chat.

    Attributes:
        messages: Each has ``role`` (system, user, assistant, tool) and ``content`` (a string); other keys that a
            template may read (``tool_calls``, ``name``, ``reasoning_content``) are kept.
        original_id: The row's own id as a string, or ``None``.
        template_kwargs: Further variables for the template (``tools``, ``chat_template_kwargs``).
    """

    messages: list[dict[str, Any]]
    original_id: str | None
    template_kwargs: dict[str, Any] = field(default_factory=dict)
