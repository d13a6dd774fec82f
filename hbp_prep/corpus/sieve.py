"""The sieve: which rows are left out before anything is drawn, by a source's filter or as exact duplicates.

Weight and limit draw among the rows that the sieve leaves. A duplicate is a row whose conversation (messages, template
variables, text; not its id) is equal to that of an earlier row of the corpus, in the order of sources, files and rows;
the first copy stays. Rows that cannot be read are left in: the tokenization rejects them, with their reasons.

Cost: one more pass over the sources concerned, read and parsed on all workers; nothing where neither option is used.
Memory: 16 bytes a row to find duplicates, else one byte a row. Results are kept in the work folder, by contents.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
from numpy.typing import NDArray

from hbp_prep.corpus.formats import row_format
from hbp_prep.corpus.read import columns_to_read, convert, read_values
from hbp_prep.corpus.types import Conversation, Corpus, CorpusFile, LeftOut, SourceSpec, Unit
from hbp_prep.corpus.where import where_columns, where_is_true
from hbp_prep.errors import ConfigError
from hbp_prep.files import write_bytes
from hbp_prep.fingerprint import fingerprint
from hbp_prep.progress import NoProgress, Progress, track
from hbp_prep.reasons import RowRejected

_VERSION = 1
_BATCH_ROWS = 4096
_HASH_BYTES = 16
_DTYPE = np.dtype([("high", "<u8"), ("low", "<u8")])

Hashes = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class SieveTask:
    """One unit to look at."""

    file: CorpusFile
    source: SourceSpec
    unit: Unit
    deduplicate: bool


@dataclass(frozen=True, kw_only=True)
class SievedUnit:
    """What was found in a unit of n rows.

    Attributes:
        left_out: uint8[n] of ``LeftOut``: what the filter says of each row.
        has_columns: The filter's columns that any row has.
        hashes: 16 bytes for each of n rows, or none; all zero where a row has no conversation or is filtered.
    """

    left_out: NDArray[np.uint8]
    has_columns: frozenset[str]
    hashes: Hashes


MapTasks = Callable[[Callable[[SieveTask], SievedUnit], Iterable[SieveTask]], Iterator[SievedUnit]]


def sieve_corpus(
    corpus: Corpus,
    *,
    deduplicate: bool,
    folder: Path,
    map_tasks: MapTasks = map,
    progress: Progress | None = None,
) -> Corpus:
    """The corpus with its sieves; what is left out of each source is said aloud.

    Args:
        deduplicate: Leave out all but the first of equal conversations.
        folder: Where results are kept.

    Raises:
        DataError: a file is gone, damaged or changed.
        ConfigError: a filter's column is in no row of its source.
    """
    progress = progress or NoProgress()
    if not deduplicate and all(source.where is None for source in corpus.sources):
        return corpus
    path = folder / f"sieve-{_fingerprint(corpus, deduplicate)}.bin"
    left_out = _load(path, sum(unit.num_rows for unit in corpus.units))
    if left_out is None:
        left_out = _sieve(corpus, deduplicate, map_tasks, progress)
        content = left_out.tobytes()
        write_bytes(path, sha256(content).digest() + content)
    sieves: list[NDArray[np.uint8] | None] = []
    first = 0
    for index, source in enumerate(corpus.sources):
        num_rows = corpus.num_rows_of_source(index)
        sieve = left_out[first : first + num_rows]
        first += num_rows
        sieves.append(sieve if sieve.any() else None)
        _say(progress, source, sieve, deduplicate)
    return replace(corpus, sieves=tuple(sieves))


def sieve_unit(task: SieveTask) -> SievedUnit:
    """Judge and hash the rows of one unit. Runs in any process."""
    form = row_format(task.file.row_format)
    columns = where_columns(task.source) | (columns_to_read(form, task.source) if task.deduplicate else set())
    left_out = np.zeros(task.unit.num_rows, np.uint8)
    digests = bytearray(_HASH_BYTES * task.unit.num_rows if task.deduplicate else 0)
    wanted = where_columns(task.source)
    has_columns: set[str] = set()
    batch: list[tuple[int, Any]] = []
    for _, index, row in read_values(task.file, task.unit, columns):
        if len(has_columns) < len(wanted) and isinstance(row, dict):
            has_columns |= wanted & row.keys()
        batch.append((index, row))
        if len(batch) == _BATCH_ROWS:
            _sieve_batch(task, batch, left_out, digests)
            batch = []
    _sieve_batch(task, batch, left_out, digests)
    return SievedUnit(left_out=left_out, has_columns=frozenset(has_columns), hashes=np.frombuffer(digests, _DTYPE))


def _sieve_batch(
    task: SieveTask, batch: Sequence[tuple[int, Any]], left_out: NDArray[np.uint8], digests: bytearray
) -> None:
    if task.source.where is not None:
        objects = [(index, row) for index, row in batch if isinstance(row, dict)]
        for (index, _), verdict in zip(objects, where_is_true(task.source, [row for _, row in objects]), strict=True):
            if verdict is not True:
                left_out[index] = LeftOut.UNJUDGED if isinstance(verdict, RowRejected) else LeftOut.FILTERED
    if not task.deduplicate:
        return
    form = row_format(task.file.row_format)
    for index, row in batch:
        if left_out[index] or isinstance(row, RowRejected):
            continue
        conversation = convert(form, row, task.source)
        if isinstance(conversation, Conversation):
            digests[_HASH_BYTES * index : _HASH_BYTES * (index + 1)] = content_hash(conversation)


def content_hash(conversation: Conversation) -> bytes:
    """128 bits of what a conversation holds: messages, template variables and text, whatever the order of keys."""
    content = [conversation.messages, conversation.template_kwargs, conversation.text]
    try:
        data = orjson.dumps(content, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        data = repr(content).encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=_HASH_BYTES).digest()


def _sieve(corpus: Corpus, deduplicate: bool, map_tasks: MapTasks, progress: Progress) -> NDArray[np.uint8]:
    """uint8 for every row of the corpus, in order."""
    tasks = []
    for unit in corpus.units:
        file = corpus.files[unit.file]
        source = corpus.sources[file.source]
        if deduplicate or source.where is not None:
            tasks.append(SieveTask(file=file, source=source, unit=unit, deduplicate=deduplicate))
    left_out = np.zeros(sum(unit.num_rows for unit in corpus.units), np.uint8)
    firsts = np.cumsum([0, *(unit.num_rows for unit in corpus.units)])
    hashes = np.zeros(len(left_out) if deduplicate else 0, _DTYPE)
    lacking = {source.name: where_columns(source) for source in corpus.sources}
    with track(progress, "Sieving", sum(task.unit.num_rows for task in tasks), "rows"):
        for task, found in zip(tasks, map_tasks(sieve_unit, tasks), strict=True):
            rows = slice(int(firsts[task.unit.index]), int(firsts[task.unit.index + 1]))
            left_out[rows] = found.left_out
            lacking[task.source.name] -= found.has_columns
            if deduplicate:
                hashes[rows] = found.hashes
            progress.advance(task.unit.num_rows)
    for name, columns in lacking.items():
        if columns:
            raise ConfigError(
                f"source {name!r}: where: no row has a column {', '.join(map(repr, sorted(columns)))}; names are those "
                "in the file, and upper and lower case differ"
            )
    if deduplicate:
        left_out[is_later_copy(hashes)] = LeftOut.DUPLICATE
    return left_out


def is_later_copy(hashes: Hashes) -> NDArray[np.bool_]:
    """bool[n]: whether the same hash stands earlier; never for hashes of zero, which say that there is nothing."""
    frame = pl.DataFrame({name: np.ascontiguousarray(hashes[name]) for name in ("high", "low")})
    is_first = frame.select(pl.struct("high", "low").is_first_distinct()).to_series().to_numpy()
    has_content = (hashes["high"] != 0) | (hashes["low"] != 0)
    return ~is_first & has_content


def _fingerprint(corpus: Corpus, deduplicate: bool) -> str:
    files = [
        [corpus.files[unit.file].sha256, corpus.files[unit.file].row_format, unit.start, unit.stop, unit.num_rows]
        for unit in corpus.units
    ]
    settings = [
        [source.where, sorted(source.columns.items()), sorted(source.roles.items()), source.format]
        for source in corpus.sources
    ]
    owners = [file.source for file in corpus.files]
    return fingerprint([_VERSION, pl.__version__, deduplicate, files, settings, owners])


def _load(path: Path, num_rows: int) -> NDArray[np.uint8] | None:
    """What was found before: a checksum, and a byte a row; ``None`` if it is missing or damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    seal, content = data[: sha256().digest_size], data[sha256().digest_size :]
    if len(content) != num_rows or sha256(content).digest() != seal:
        return None
    return np.frombuffer(content, np.uint8)


def _say(progress: Progress, source: SourceSpec, sieve: NDArray[np.uint8], deduplicate: bool) -> None:
    num_filtered = int(np.count_nonzero(sieve == LeftOut.FILTERED))
    num_duplicates = int(np.count_nonzero(sieve == LeftOut.DUPLICATE))
    told = [f"where leaves out {num_filtered:,}"] if source.where is not None else []
    told += [f"{num_duplicates:,} duplicates are left out"] if deduplicate else []
    if told:
        progress.say(f"source {source.name!r}: of {len(sieve):,} rows {', '.join(told)}")
