"""Corpus to token store: one task per unit, skipped when its file was made by the very same inputs and settings.

Cost: 30 MB/s a core, reading and writing included; rows that are not selected are not rendered. Memory of a worker:
500 MB with a vocabulary of 128K, one unit's tokens and one batch of encodings included.
"""

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbp_prep.corpus.read import read_unit
from hbp_prep.corpus.selection import RowSelection
from hbp_prep.corpus.types import Conversation, Corpus, CorpusFile, SourceSpec, Unit
from hbp_prep.errors import DataError
from hbp_prep.files import remove_stray_temps
from hbp_prep.fingerprint import fingerprint
from hbp_prep.progress import NoProgress, Progress, track
from hbp_prep.reasons import RowRejected
from hbp_prep.tokenization.encoding import BATCH_CHARS
from hbp_prep.tokenization.store import STORE_VERSION, UNIT_PATTERN, UnitCounts, UnitWriter, read_counts, unit_path
from hbp_prep.tokenization.tokenizer import ChatTokenizer, TokenizationSpec


@dataclass(frozen=True, kw_only=True)
class TokenizeTask:
    """One unit to tokenise.

    Attributes:
        selected: bool[unit.num_rows], the rows that the sieve, weight and limit leave.
        tokenizer_fingerprint: What ``spec`` was when the run began.
        path: Where the result goes.
        fingerprint: What the result is made of.
    """

    unit: Unit
    file: CorpusFile
    source: SourceSpec
    selected: NDArray[np.bool_]
    spec: TokenizationSpec
    tokenizer_fingerprint: str
    path: Path
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class TokenizationSummary:
    """What a run of :func:`tokenize_corpus` found and made.

    Attributes:
        num_rows: All rows of the corpus, selected or not.
        num_selected: Rows that weight and limit leave.
        num_accepted: Of those, rows that became tokens.
        num_special_texts: Texts of special tokens in accepted rows' strings.
        backend: What has encoded: ``tokenizers`` or ``gigatoken``; ``None`` if all was done before.
        why_not_fast: Why it is ``tokenizers``, though ``gigatoken`` was wished for.
    """

    num_units: int
    num_reused_units: int
    num_rows: int
    num_selected: int
    num_accepted: int
    num_tokens: int
    num_loss_tokens: int
    num_special_texts: int
    backend: str | None = None
    why_not_fast: str | None = None

    @property
    def sentence(self) -> str:
        """The run in one line, for people to read."""
        why = "" if self.why_not_fast is None else f" (gigatoken is faster, but {self.why_not_fast})"
        by = "" if self.backend is None else f" with {self.backend}{why}"
        return (
            f"Tokenised{by}: {self.num_accepted:,} rows, {self.num_tokens:,} tokens; "
            f"{self.num_special_texts:,} special tokens' texts inside rows"
        )


class TokenizedUnit(NamedTuple):
    """What was stored of a unit, and what has encoded it; see :class:`TokenizationSummary`."""

    counts: UnitCounts
    backend: str
    why_not_fast: str | None


MapTasks = Callable[[Callable[[TokenizeTask], TokenizedUnit], Iterable[TokenizeTask]], Iterator[TokenizedUnit]]


def tokenize_corpus(
    corpus: Corpus,
    spec: TokenizationSpec,
    *,
    folder: Path,
    seed: int,
    tokenizer: ChatTokenizer | None = None,
    map_tasks: MapTasks = map,
    progress: Progress | None = None,
) -> TokenizationSummary:
    """Bring the token store in ``folder`` up to date with ``corpus`` and ``spec``.

    Args:
        seed: Draws the rows of sources with a weight or a limit.
        tokenizer: What ``spec`` names, if it is loaded already.
        map_tasks: Runs :func:`tokenize_unit` over the tasks, in order, in any processes.

    Raises:
        DataError: an input file is gone or changed, the tokenizer is damaged, or the store cannot be written.
        ConfigError: the chat template cannot be used.
    """
    progress = progress or NoProgress()
    tokenizer_fingerprint = (tokenizer or ChatTokenizer.load(spec)).fingerprint
    remove_stray_temps(folder)
    _remove_other_units(folder, len(corpus.units))
    selection = RowSelection(corpus, seed)
    todo: list[TokenizeTask] = []
    counts: list[UnitCounts] = []
    backend = why_not_fast = None
    with track(progress, "Tokenising", sum(unit.num_rows for unit in corpus.units), "rows"):
        for unit in corpus.units:
            task = _task(corpus, unit, selection.repeats(unit) > 0, spec, tokenizer_fingerprint, folder)
            found = read_counts(task.path, task.fingerprint)
            if found is None:
                todo.append(task)
            else:
                counts.append(found)
                progress.advance(unit.num_rows)
        num_reused_units = len(counts)
        for task, made in zip(todo, map_tasks(tokenize_unit, todo), strict=True):
            counts.append(made.counts)
            backend, why_not_fast = made.backend, made.why_not_fast
            progress.advance(task.unit.num_rows)
    return TokenizationSummary(
        num_units=len(corpus.units),
        num_reused_units=num_reused_units,
        num_rows=sum(unit.num_rows for unit in corpus.units),
        num_selected=sum(one.num_rows for one in counts),
        num_accepted=sum(one.num_accepted for one in counts),
        num_tokens=sum(one.num_tokens for one in counts),
        num_loss_tokens=sum(one.num_loss_tokens for one in counts),
        num_special_texts=sum(one.num_special_texts for one in counts),
        backend=backend,
        why_not_fast=why_not_fast,
    )


def tokenize_unit(task: TokenizeTask) -> TokenizedUnit:
    """Read, tokenise and store one unit. Runs in any process; the same task gives the same bytes.

    Raises:
        DataError: the input file or the tokenizer has changed since the run began, or the result cannot be written.
    """
    if multiprocessing.parent_process() is not None:
        # Workers fill the cores already: a pool of the library's own threads in each would only crowd them.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer = _tokenizer(task.spec, task.tokenizer_fingerprint)
    with _without_collector():
        counts = _tokenize(task, tokenizer)
    return TokenizedUnit(counts, tokenizer.encoder.backend_name, tokenizer.encoder.why_not_fast)


def _tokenize(task: TokenizeTask, tokenizer: ChatTokenizer) -> UnitCounts:
    writer = UnitWriter()
    batch: list[tuple[int, int, Conversation | RowRejected]] = []
    num_chars = 0
    for item in read_unit(task.file, task.source, task.unit, task.selected):
        batch.append(item)
        num_chars += _num_chars(item[2])
        if num_chars >= BATCH_CHARS:
            _store(writer, tokenizer, batch)
            batch, num_chars = [], 0
    _store(writer, tokenizer, batch)
    return writer.write(task.path, task.fingerprint)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Rows are trees without cycles; looking for cycles in them would take a fifth of a unit's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _task(
    corpus: Corpus,
    unit: Unit,
    selected: NDArray[np.bool_],
    spec: TokenizationSpec,
    tokenizer_fingerprint: str,
    folder: Path,
) -> TokenizeTask:
    file = corpus.files[unit.file]
    source = corpus.sources[file.source]
    made_of = {
        "store_version": STORE_VERSION,
        "tokenizer": tokenizer_fingerprint,
        "file": [file.sha256, file.file_format, file.row_format, dict(source.columns), dict(source.roles)],
        "unit": [unit.start, unit.stop, unit.first_row, unit.num_rows],
        "selected": "all" if selected.all() else sha256(np.packbits(selected).tobytes()).hexdigest(),
    }
    return TokenizeTask(
        unit=unit,
        file=file,
        source=source,
        selected=selected,
        spec=spec,
        tokenizer_fingerprint=tokenizer_fingerprint,
        path=unit_path(folder, unit.index),
        fingerprint=fingerprint(made_of),
    )


def _store(
    writer: UnitWriter, tokenizer: ChatTokenizer, batch: list[tuple[int, int, Conversation | RowRejected]]
) -> None:
    encoded = iter(tokenizer.encode_batch([item for _, _, item in batch if isinstance(item, Conversation)]))
    for row, index, item in batch:
        if isinstance(item, RowRejected):
            writer.add(row, index, None, item)
        else:
            writer.add(row, index, item.original_id, next(encoded))


def _num_chars(item: Conversation | RowRejected) -> int:
    if isinstance(item, RowRejected):
        return 0
    return len(item.text or "") + sum(len(message["content"] or "") for message in item.messages)


def _remove_other_units(folder: Path, num_units: int) -> None:
    """Remove the files of units that the corpus no longer has."""
    wanted = {unit_path(folder, index) for index in range(num_units)}
    for path in folder.glob(UNIT_PATTERN):
        if path not in wanted:
            path.unlink()


@lru_cache(maxsize=1)
def _tokenizer(spec: TokenizationSpec, expected_fingerprint: str) -> ChatTokenizer:
    """This process's tokenizer, loaded once; with the fingerprint in the key, changed contents are noticed."""
    tokenizer = ChatTokenizer.load(spec)
    if tokenizer.fingerprint != expected_fingerprint:
        raise DataError(f"tokenizer {spec.tokenizer} or its chat template has changed during the run; run again")
    return tokenizer
