"""The rank files of Llama 3 and Qwen, rebuilt byte for byte from tokenizer.json, against tiktoken on every real row."""

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiktoken
from tokenizers import Tokenizer

from hbp_prep.tokenization.folder import read_tokenizer_folder
from hbp_prep.tokenization.rank_file import FAMILIES
from tests.reference.real_rows import every_text

pytestmark = [pytest.mark.real, pytest.mark.slow]

HARD = (
    "".join(chr(code) for code in range(0x2000) if chr(code).isprintable()),
    "we've WE'VE we\u2019ve I'LL 'tis 1234567 1,234.5 \u0661\u0662\u0663\u0664 \u00bd\u00b2 \u2167",
    " \t\n\r\n\n  \u00a0\u3000 x \u200b\u200d\ufeff y   \n  z ",
    "e\u0301 \u1112\u1161\u11ab \u212b \u0958 \U0001f469\u200d\U0001f467\U0001f3fd \U0001f1e9\U0001f1ea",
    "a" * 5_000 + " " * 5_000 + "\n" * 500 + "!?" * 1_000 + "\u4e2d" * 3_000,
    "def f(x):\n    return x[1:]  # -> list\n\n\n\tif (a&&b){c=d;}\r\n//// /*",
)


def rebuilt(folder: Path) -> bytes:
    """The vocabulary without added tokens as a rank file."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}
    vocabulary = json.loads((folder / "tokenizer.json").read_bytes())["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.get)
    return b"".join(
        base64.b64encode(bytes(byte_of[symbol] for symbol in token)) + b" %d\n" % rank
        for rank, token in enumerate(tokens)
    )


def tiktokens(data: bytes, family: str) -> tiktoken.Encoding:
    lines = [line.split() for line in data.splitlines()]
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    specials = {text: len(ranks) + index for index, text in enumerate(FAMILIES[family].specials)}
    return tiktoken.Encoding(family, pat_str=FAMILIES[family].pieces, mergeable_ranks=ranks, special_tokens=specials)


def texts(shared_data: Path) -> Iterator[str]:
    yield from HARD
    yield from every_text(shared_data)


@pytest.mark.parametrize(("name", "family"), [("llama3_1", "llama3"), ("qwen3", "qwen")])
def test_ids_equal_tiktokens_and_those_of_tokenizer_json(
    shared_data: Path, tmp_path: Path, name: str, family: str
) -> None:
    """That the rebuilt file has the SHA-256 of the published one proves that ranks are the vendor's own."""
    folder = shared_data / "tokenizers" / name
    data = rebuilt(folder)
    assert hashlib.sha256(data).hexdigest() == FAMILIES[family].sha256
    path = tmp_path / ("tokenizer.model" if family == "llama3" else "qwen.tiktoken")
    path.write_bytes(data)
    ours = read_tokenizer_folder(path).tokenizer
    by_json = Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs = tiktokens(data, family)
    # Text of special tokens is left out: the families name them otherwise than these folders.
    num_texts = 0
    for text in texts(shared_data):
        if "<|" in text or "think>" in text or "tool_" in text:
            continue
        normal = ours.normalizer.normalize_str(text) if ours.normalizer else text
        ids = ours.encode(text, add_special_tokens=False).ids
        assert ids == theirs.encode_ordinary(normal), text[:200]
        assert ids == by_json.encode(text, add_special_tokens=False).ids, text[:200]
        num_texts += 1
    assert num_texts > 60_000
