"""All rows of the real corpora, read once through the corpus room."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hbp_prep.corpus.read import read_unit
from hbp_prep.corpus.scan import scan_corpus
from hbp_prep.corpus.types import Conversation, SourceSpec
from hbp_prep.errors import HbpError
from hbp_prep.reasons import RowRejected

# Files that no row format fits: what they hold is told in words where they are counted.
SUFFIXES = (".json", ".jsonl", ".parquet")


def corpus_files(shared_data: Path) -> list[Path]:
    return sorted(path for path in (shared_data / "corpora").rglob("*") if path.suffix in SUFFIXES)


def rows_of(path: Path) -> Iterator[tuple[int, Conversation | RowRejected]]:
    """The file's rows by number.

    Raises:
        HbpError: its rows have no form that is known.
    """
    corpus = scan_corpus([SourceSpec(name=path.stem, paths=(str(path),))])[0]
    for unit in corpus.units:
        for row, _, item in read_unit(corpus.files[0], corpus.sources[0], unit, np.ones(unit.num_rows, np.bool_)):
            yield row, item


def every_conversation(shared_data: Path) -> Iterator[tuple[str, int, Conversation]]:
    """File name, row, conversation; files without a known form and rows that cannot be read are left out."""
    for path in corpus_files(shared_data):
        try:
            rows = list(rows_of(path))
        except HbpError:
            continue
        for row, item in rows:
            if isinstance(item, Conversation):
                yield path.name, row, item


def every_text(shared_data: Path) -> Iterator[str]:
    for _, _, conversation in every_conversation(shared_data):
        for message in conversation.messages:
            if message["content"]:
                yield message["content"]
