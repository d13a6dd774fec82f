"""The scan: which files the sources have, what is in them, and where they are cut into units.

Every file is read once, in chunks: its checksum, its number of rows and the cut points of its units come from the same
pass. Units are cut by content alone (the first row that starts 4 MiB or more after the unit's first begins the next),
so neither the number of workers nor the order of work shows in anything. A unit starts at the first byte of its first
row and stops where the next unit starts, the last one at the end of the file; the first unit of a JSON array starts at
the array's bracket. So the units of a file hold every row once; only a byte order mark and blanks lie before the first.
What the rows of a damaged array are is said in ``rowstream``. Remote and compressed files are brought into the spool
first (``spool``), and scanned there.

Cost: 500 MB/s and more per core for JSON lines; memory a few megabytes per worker whatever the file.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hbp_prep.corpus import arrow, parquet
from hbp_prep.corpus.detect import check_format_settings, detect_formats
from hbp_prep.corpus.paths import file_format_of_suffix, source_files
from hbp_prep.corpus.remote import is_remote, lives_in_this_process
from hbp_prep.corpus.rowstream import RowStream, read_chunks
from hbp_prep.corpus.spool import fetch, needs_spool, signature_of, spool_path
from hbp_prep.corpus.types import Corpus, CorpusFile, FileSignature, SourceSpec, Unit
from hbp_prep.corpus.where import check_where
from hbp_prep.errors import ConfigError, DataError
from hbp_prep.files import read_error, write_json
from hbp_prep.progress import NoProgress, Progress, track

UNIT_BYTES = 4 << 20
_SHOWN_FILES = 3
_BOM = b"\xef\xbb\xbf"
_JSON_BLANK = b" \t\r\n"

UnitSpan = tuple[int, int, int, int]
MapTasks = Callable[[Callable[[str], "FileScan"], Iterable[str]], Iterator["FileScan"]]


@dataclass(frozen=True, kw_only=True)
class FileScan:
    """What one file holds.

    Attributes:
        path: Absolute, or an address.
        signature: When it was read.
        spooled: Signature of its content in the spool; ``None`` if it is read in place.
        unit_bytes: Units were cut for this size.
        file_format: As in ``types.CorpusFile``.
        sha256: Of its content, decompressed.
        num_rows: Rows in it, blank lines not counted.
        units: (start, stop, first row, number of rows) of each unit, as in ``types.Unit``.
    """

    path: str
    signature: FileSignature
    unit_bytes: int
    file_format: str
    sha256: str
    num_rows: int
    units: tuple[UnitSpan, ...]
    spooled: FileSignature | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self) | {"units": [list(unit) for unit in self.units]}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> "FileScan":
        """The inverse of :meth:`to_dict`.

        Raises:
            DataError: ``value`` was written by another version.
        """
        try:
            signature = FileSignature(**value["signature"])
            units = tuple((start, stop, first, num_rows) for start, stop, first, num_rows in value["units"])
            spooled = value["spooled"] and FileSignature(**value["spooled"])
            return cls(**{**value, "signature": signature, "spooled": spooled, "units": units})
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the file scan is of another version ({error}); run again from the start") from error


def scan_corpus(
    sources: Sequence[SourceSpec],
    *,
    map_tasks: MapTasks = map,
    progress: Progress | None = None,
    previous: Sequence[FileScan] = (),
    spool: Path | None = None,
    unit_bytes: int = UNIT_BYTES,
) -> tuple[Corpus, list[FileScan]]:
    """Scan every file of every source and decide each file's row format.

    Args:
        sources: In order; units and files follow it.
        map_tasks: Runs the scan of each file, as the builtin ``map`` does.
        progress: Told of bytes done, and of one line per source.
        previous: Earlier scans; one whose path, signature and unit size are unchanged is taken as it is.
        spool: Folder for the content of remote and compressed files; without one they are refused.
        unit_bytes: Size at which units are cut.

    Returns:
        The corpus, and the scan of every distinct file in order of first use.

    Raises:
        ConfigError: a format, a column, a suffix or a file named twice.
        DataError: a file that is missing, damaged or changing; a source without rows; rows of no known format.
    """
    progress = progress or NoProgress()
    for source in sources:
        check_format_settings(source)
        check_where(source)
    paths_by_source = [source_files(source) for source in sources]
    paths = list(dict.fromkeys(path for paths in paths_by_source for path in paths))
    if spool is None and (unreadable := [path for path in paths if needs_spool(path)]):
        raise ConfigError(f"{unreadable[0]}: a remote or compressed file needs a folder for its content")
    scans = _scan_files(paths, map_tasks, progress, previous, spool, unit_bytes)
    files: list[CorpusFile] = []
    units: list[Unit] = []
    for index, (source, source_paths) in enumerate(zip(sources, paths_by_source, strict=True)):
        source_scans = [scans[path] for path in source_paths]
        row_formats, remark = _formats_of_files(source, source_scans, spool)
        num_rows = sum(scan.num_rows for scan in source_scans)
        num_files = f"{len(source_scans)} file" + ("s" if len(source_scans) > 1 else "")
        progress.say(f"source {source.name!r}: {num_rows:,} rows in {num_files}, {remark}")
        ordinal = 0
        for scan, row_format in zip(source_scans, row_formats, strict=True):
            units += _units_of_file(scan, index=len(units), file=len(files), ordinal=ordinal)
            files.append(_corpus_file(scan, index, row_format, spool))
            ordinal += scan.num_rows
    return Corpus(sources=tuple(sources), files=tuple(files), units=tuple(units)), list(scans.values())


def scan_file(path: str, unit_bytes: int = UNIT_BYTES, spool: Path | None = None) -> FileScan:
    """Scan one file; its suffix must be a known one.

    Raises:
        DataError: it cannot be read, is not valid Parquet or Arrow, or changes while it is read.
    """
    if spool is None or not needs_spool(path):
        return _scan_plain(path, unit_bytes)
    content = spool_path(spool, path)
    signature = fetch(path, spool)
    scan = _scan_plain(str(content), unit_bytes)
    scan = replace(scan, path=path, signature=signature, spooled=scan.signature)
    write_json(_note_of(content), scan.to_dict())
    return scan


def _scan_plain(path: str, unit_bytes: int) -> FileScan:
    try:
        with open(path, "rb") as handle:
            signature = FileSignature.of(os.fstat(handle.fileno()))
            file_format = file_format_of_suffix(path)
            if file_format in ("parquet", "arrow"):
                if file_format == "arrow":
                    file_format = arrow.arrow_format(handle.read(8))
                checksum = _checksum(handle)
                units = [(start, stop, start, stop - start) for start, stop in _ranges(path, file_format, unit_bytes)]
            else:
                file_format, begin = _text_format(handle, path)
                checksum, units = _scan_text(handle, file_format, begin, signature.size_bytes, unit_bytes)
        changed = FileSignature.of(os.stat(path)) != signature
    except OSError as error:
        raise read_error(path, error) from error
    if changed:
        raise DataError(f"{path} changed while it was read; run again when nothing writes to it")
    return FileScan(
        path=path,
        signature=signature,
        unit_bytes=unit_bytes,
        file_format=file_format,
        sha256=checksum,
        num_rows=sum(num_rows for *_, num_rows in units),
        units=tuple(units),
    )


def _ranges(path: str, file_format: str, unit_bytes: int) -> list[tuple[int, int]]:
    if file_format == "parquet":
        return parquet.row_ranges(path, unit_bytes)
    return arrow.row_ranges(path, file_format, unit_bytes)


def _scan_files(
    paths: list[str],
    map_tasks: MapTasks,
    progress: Progress,
    previous: Sequence[FileScan],
    spool: Path | None,
    unit_bytes: int,
) -> dict[str, FileScan]:
    """The scan of every path, in that order; only files without a scan that still holds are read."""
    earlier = {scan.path: scan for scan in previous}
    scans: dict[str, FileScan] = {}
    here: list[str] = []
    anywhere: list[str] = []
    total_bytes = 0
    for path in paths:
        signature = signature_of(path)
        known = earlier.get(path) or _noted_scan(path, spool)
        if known is not None and known.unit_bytes == unit_bytes and _still_holds(known, signature, spool):
            scans[path] = known
        else:
            (here if lives_in_this_process(path) else anywhere).append(path)
            total_bytes += signature.size_bytes
    scan_one = partial(scan_file, unit_bytes=unit_bytes, spool=spool)
    with track(progress, "scan", total_bytes, "bytes"):
        for scan in chain(map(scan_one, here), map_tasks(scan_one, anywhere)):
            scans[scan.path] = scan
            progress.advance(scan.signature.size_bytes)
    return {path: scans[path] for path in paths}


def _still_holds(scan: FileScan, signature: FileSignature, spool: Path | None) -> bool:
    """Whether file and spooled content are as they were; where a store names no version, nobody knows."""
    if scan.signature != signature or (is_remote(scan.path) and not signature.version):
        return False
    if scan.spooled is None or spool is None:
        return not needs_spool(scan.path)
    content = spool_path(spool, scan.path)
    return content.is_file() and FileSignature.of(content.stat()) == scan.spooled


def _note_of(content: Path) -> Path:
    """The scan of a spooled file lies beside it, so that a run that breaks off loses the file in hand only."""
    return content.with_name(content.name + ".scan.json")


def _noted_scan(path: str, spool: Path | None) -> FileScan | None:
    if spool is None or not needs_spool(path):
        return None
    try:
        return FileScan.from_dict(json.loads(_note_of(spool_path(spool, path)).read_bytes()))
    except (OSError, ValueError, TypeError, DataError):
        return None


def _text_format(handle: BinaryIO, path: str) -> tuple[str, int]:
    """``json`` and the offset of the array's bracket, or ``jsonl`` and the offset after a byte order mark."""
    num_mark_bytes = 0
    for offset, chunk in read_chunks(handle, 0):
        if offset == 0 and chunk.startswith(_BOM):
            num_mark_bytes = len(_BOM)
            chunk = b" " * num_mark_bytes + chunk[num_mark_bytes:]
        text = chunk.lstrip(_JSON_BLANK)
        if text.startswith(b"[") and file_format_of_suffix(path) == "json":
            return "json", offset + len(chunk) - len(text)
        if text:
            break
    return "jsonl", num_mark_bytes


def _scan_text(
    handle: BinaryIO, file_format: str, begin: int, size_bytes: int, unit_bytes: int
) -> tuple[str, list[UnitSpan]]:
    """Checksum and units of a JSON text file whose text begins at ``begin``."""
    digest = sha256()
    stream = RowStream(file_format, at_head=True)
    num_rows = 0
    cuts: list[tuple[int, int, int]] = []  # start, number of the first row, rows before it
    for offset, chunk in read_chunks(handle, 0):
        digest.update(chunk)
        if offset + len(chunk) <= begin:
            continue
        if offset < begin:
            chunk, offset = chunk[begin - offset :], begin
        starts, _, numbers = stream.feed(chunk, offset)
        if not cuts and len(starts):
            cuts.append((int(starts[0]), int(numbers[0]), 0))
        while len(starts) and starts[-1] >= cuts[-1][0] + unit_bytes:
            place = int(np.searchsorted(starts, cuts[-1][0] + unit_bytes))
            cuts.append((int(starts[place]), int(numbers[place]), num_rows + place))
        num_rows += len(starts)
    num_rows += stream.fault_at_end(size_bytes) is not None
    if file_format == "json":
        cuts[:1] = [(begin, 0, 0)]
    ends = [*cuts[1:], (size_bytes, 0, num_rows)] if num_rows else []
    units = [
        (start, stop, first_row, after - before)
        for (start, first_row, before), (stop, _, after) in zip(cuts, ends, strict=False)
    ]
    return digest.hexdigest(), units


def _checksum(handle: BinaryIO) -> str:
    digest = sha256()
    for _, chunk in read_chunks(handle, 0):
        digest.update(chunk)
    return digest.hexdigest()


def _formats_of_files(source: SourceSpec, scans: Sequence[FileScan], spool: Path | None) -> tuple[list[str], str]:
    """Each file's row format, and what to tell the user of how it was found."""
    with_rows = [scan for scan in scans if scan.units]
    if not with_rows:
        names = ", ".join(scan.path for scan in scans[:_SHOWN_FILES])
        raise DataError(f"source {source.name!r} has no rows: every file is empty ({names})")
    if source.format != "auto":
        return [source.format] * len(scans), f"format {source.format}"
    first_units = [
        (_corpus_file(scan, 0, source.format, spool), _units_of_file(scan, index=0, file=0, ordinal=0)[0])
        for scan in with_rows
    ]
    formats, remark = detect_formats(source, first_units)
    found = {scan.path: row_format for scan, row_format in zip(with_rows, formats, strict=True)}
    return [found.get(scan.path, formats[0]) for scan in scans], remark


def _corpus_file(scan: FileScan, source: int, row_format: str, spool: Path | None) -> CorpusFile:
    content = scan.spooled or scan.signature
    return CorpusFile(
        source=source,
        path=scan.path,
        file_format=scan.file_format,
        row_format=row_format,
        size_bytes=content.size_bytes,
        sha256=scan.sha256,
        signature=content,
        num_rows=scan.num_rows,
        spooled=str(spool_path(spool, scan.path)) if spool is not None and scan.spooled is not None else None,
    )


def _units_of_file(scan: FileScan, *, index: int, file: int, ordinal: int) -> list[Unit]:
    """The file's units; ``index`` and ``ordinal`` are those of the first."""
    units: list[Unit] = []
    for start, stop, first_row, num_rows in scan.units:
        units.append(
            Unit(
                index=index + len(units),
                file=file,
                start=start,
                stop=stop,
                first_row=first_row,
                first_ordinal=ordinal,
                num_rows=num_rows,
            )
        )
        ordinal += num_rows
    return units
