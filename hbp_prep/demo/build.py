"""Build the demo corpus: chats, long requests, a tokenizer and a recipe, from nothing but Python itself.

No download; about 20 seconds on two slow cores. The same Python and seed give the same bytes.
"""

import platform
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from zlib import crc32

import numpy as np
import orjson

from hbp_prep.demo.chats import Row, short_chats
from hbp_prep.demo.long_requests import long_requests
from hbp_prep.demo.stdlib import Module, load_modules, load_topics
from hbp_prep.demo.tokenizer import save_tokenizer, train_tokenizer
from hbp_prep.errors import DataError
from hbp_prep.files import remove_stray_temps, write_bytes
from hbp_prep.progress import NoProgress, Progress, track

_MARK = "Demo corpus made by hbp-prep."
_SILENT = NoProgress()


@dataclass(frozen=True, kw_only=True)
class DemoCorpus:
    """What was written, all inside ``folder``."""

    folder: Path
    short: Path
    long: Path
    tokenizer: Path
    recipe: Path
    source_note: Path


def build_demo_corpus(folder: Path, *, seed: int = 0, progress: Progress = _SILENT) -> DemoCorpus:
    """Write the demo corpus into ``folder``, which is new, empty, or an earlier demo corpus (then it is made afresh).

    A ``recipe.yaml`` that was edited is left as it is.

    Raises:
        DataError: ``folder`` holds something else, or cannot be written, or this Python keeps no sources.
    """
    demo = DemoCorpus(
        folder=folder,
        short=folder / "short.jsonl",
        long=folder / "long.jsonl",
        tokenizer=folder / "tokenizer",
        recipe=folder / "recipe.yaml",
        source_note=folder / "SOURCE.txt",
    )
    _claim(demo)
    with track(progress, "Building the demo corpus", 4, "files"):
        modules = load_modules()
        chats = short_chats(modules, load_topics(), seed)
        _write_rows(demo.short, chats)
        progress.advance(1)
        tokenizer = train_tokenizer(_training_texts(chats, modules, seed))
        save_tokenizer(tokenizer, demo.tokenizer)
        progress.advance(1)

        def count_tokens(texts: list[str]) -> list[int]:
            return [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts)]

        _write_rows(demo.long, long_requests(modules, count_tokens, seed))
        progress.advance(1)
        _write_recipe(demo.recipe, progress)
        progress.advance(1)
    return demo


def _claim(demo: DemoCorpus) -> None:
    """Refuse a folder with other contents; mark it as ours before anything else is written."""
    folder = demo.folder
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; name a new folder for the demo corpus")
    if folder.is_dir() and any(folder.iterdir()):
        note = demo.source_note.read_text(encoding="utf-8", errors="replace") if demo.source_note.is_file() else ""
        if not note.startswith(_MARK):
            raise DataError(f"{folder}: is not empty, and not a demo corpus of hbp-prep; name a new or empty folder")
        remove_stray_temps(folder)
    write_bytes(demo.source_note, _source_note().encode())


def _source_note() -> str:
    version = f"{platform.python_implementation()} {platform.python_version()}"
    return f"""{_MARK}

Made from the standard library of {version}: its docstrings, its sources, and the language topics of its
pydoc. Copyright (c) Python Software Foundation, under the PSF License Agreement: https://docs.python.org/3/license.html
Questions are generated, answers are quoted or computed from the sources.

short.jsonl   short chats: id, messages, source
long.jsonl    long requests over whole modules: id, prompt, response
tokenizer/    byte-level BPE trained on these texts
recipe.yaml   a recipe for all of it
"""


def _training_texts(chats: list[Row], modules: list[Module], seed: int) -> list[str]:
    """Chats and modules, shuffled together."""
    texts = [message["content"] for row in chats for message in row["messages"]]
    texts += [module.source for module in modules]
    order = np.random.default_rng([seed, crc32(b"demo tokenizer")]).permutation(len(texts))
    return [texts[index] for index in order]


def _write_rows(path: Path, rows: list[Row]) -> None:
    write_bytes(path, b"".join(orjson.dumps(row) + b"\n" for row in rows))


def _write_recipe(path: Path, progress: Progress) -> None:
    recipe = files("hbp_prep.demo").joinpath("recipe.yaml").read_bytes()
    if path.is_file() and path.read_bytes() != recipe:
        progress.say(f"{path}: differs from the demo's recipe; left as it is")
        return
    write_bytes(path, recipe)
