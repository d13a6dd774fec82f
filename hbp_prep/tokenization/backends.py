"""Text to token ids: the ``tokenizers`` library as reference, ``gigatoken`` where it is proven to give the same.

``gigatoken`` is 20 to 60 times faster and has no character offsets. It is taken for a tokenizer only after it has given
the same ids on a fixed hard set of strings, and on tokens of the vocabulary, with this very
tokenizer.json; while a corpus is tokenised, one text in 256, chosen by its content, is encoded by both, and a
difference stops the run. Its cache of words grows with every new one (30 bytes and more each): once the process has
grown by 256 MiB it is made anew, which takes half a second.
"""

import json
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gigatoken
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from hbp_prep.errors import ConfigError, DataError
from hbp_prep.tokenization.sampling import is_sampled

BACKENDS = ("auto", "tokenizers", "gigatoken")
NAME_MARK = "\ufdd0"
"""A noncharacter; texts that have it are not given to a backend to which special tokens' texts are ordinary."""
_NUM_DRAWN_TOKENS = 4096
_MOST_GROWTH_BYTES = 256 << 20
# A cache that took less text than this is not what has grown.
_LEAST_CHARS = 16 << 20
_MOST_UNKNOWN_CHARS = 256 << 20


class TokenIds(NamedTuple):
    """Ids of N texts.

    Attributes:
        ids: int32[tokens], all texts' ids, one text after the other.
        offsets: int64[N + 1]; text i has ``ids[offsets[i]:offsets[i + 1]]``.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]


class Backend(Protocol):
    """Encodes texts; nothing is added to what they say.

    Attributes:
        why: Why it is not the fast one, though that was wished for.
    """

    name: str
    why: str | None

    def encode(self, texts: Sequence[str]) -> TokenIds:
        """The ids of every text."""


class ReferenceBackend:
    """The ``tokenizers`` library: 1 us a token and core."""

    name = "tokenizers"

    def __init__(self, tokenizer: Tokenizer, *, is_ordinary: bool = False, why: str | None = None) -> None:
        """With ``is_ordinary``, special tokens' texts are ordinary text; ``why`` the fast backend is not used."""
        self.why = why
        self._tokenizer = tokenizer
        self._is_ordinary = is_ordinary

    def encode(self, texts: Sequence[str]) -> TokenIds:
        self._tokenizer.encode_special_tokens = self._is_ordinary
        try:
            rows = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        finally:
            self._tokenizer.encode_special_tokens = False
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return TokenIds(np.array([index for row in rows for index in row], np.int32), offsets)


class GigatokenBackend:
    """``gigatoken`` on the calling thread, watched by the reference.

    Raises (when made):
        ValueError: the library cannot read this kind of tokenizer, or its ids are not the reference's.
    """

    name = "gigatoken"
    why: str | None = None

    def __init__(self, tokenizer: Tokenizer, *, is_ordinary: bool = False) -> None:
        self._tokenizer = _without_specials(tokenizer) if is_ordinary else tokenizer
        self._reference = ReferenceBackend(tokenizer, is_ordinary=is_ordinary)
        self._load()
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        different = self._first_difference([*hard_texts(added), *_texts_of_tokens(tokenizer)])
        if different is not None:
            raise ValueError(f"its ids differ for {different[:80]!r}")

    def encode(self, texts: Sequence[str]) -> TokenIds:
        """The ids of every text.

        Raises:
            DataError: a sampled text has other ids than the reference gives.
        """
        sampled = [text for text in texts if is_sampled(text)]
        different = self._first_difference(sampled)
        if different is not None:
            raise DataError(
                f"gigatoken and tokenizers give different token ids for the text that begins {different[:80]!r}; "
                "run again with --tokenizer-backend tokenizers"
            )
        ids = self._encode(texts)
        self._num_chars += sum(map(len, texts))
        if self._has_grown():
            self._load()
        return ids

    def _load(self) -> None:
        # From the loaded object, not its file: so it follows the Unicode version of the installed reference.
        self._fast: Any = None  # the old cache goes before the new one comes
        self._fast = gigatoken.Tokenizer(self._tokenizer)
        self._num_chars = 0
        self._resident_bytes = _resident_bytes()

    def _has_grown(self) -> bool:
        """Whether the cache may be large; where the system does not tell, by the text encoded."""
        if self._resident_bytes is None:
            return self._num_chars > _MOST_UNKNOWN_CHARS
        return self._num_chars > _LEAST_CHARS and (_resident_bytes() or 0) > self._resident_bytes + _MOST_GROWTH_BYTES

    def _encode(self, texts: Sequence[str]) -> TokenIds:
        if not texts:
            return TokenIds(np.zeros(0, np.int32), np.zeros(1, np.int64))
        layout = self._fast.encode_batch(list(texts), parallel=False).layout
        offsets = np.asarray(layout.offsets.data, np.int64)
        return TokenIds(np.asarray(layout.content.data)[offsets[0] : offsets[-1]].view(np.int32), offsets - offsets[0])

    def _first_difference(self, texts: Sequence[str]) -> str | None:
        fast, reference = self._encode(texts), self._reference.encode(texts)
        if np.array_equal(fast.offsets, reference.offsets) and np.array_equal(fast.ids, reference.ids):
            return None
        for index, text in enumerate(texts):
            one, other = (ids.ids[ids.offsets[index] : ids.offsets[index + 1]] for ids in (fast, reference))
            if not np.array_equal(one, other):
                return text
        raise AssertionError("the ids differ, but no text's do")


def choose_backend(tokenizer: Tokenizer, wanted: str, *, is_byte_exact: bool, is_ordinary: bool = False) -> Backend:
    """The backend for ``wanted`` (one of ``BACKENDS``); ``auto`` takes the fast one wherever it is proven.

    Args:
        is_ordinary: To it, special tokens' texts are ordinary text (that has no ``NAME_MARK``).
        is_byte_exact: Token ids give the tokens' bytes, and so the offsets that the fast backend does not have.

    Raises:
        ConfigError: ``gigatoken`` is demanded, and is not proven for this tokenizer.
    """
    if wanted == "tokenizers":
        return ReferenceBackend(tokenizer, is_ordinary=is_ordinary)
    why = "it is not a byte-level tokenizer"
    if is_byte_exact:
        try:
            return GigatokenBackend(tokenizer, is_ordinary=is_ordinary)
        except (ValueError, RuntimeError) as error:
            why = str(error)
    if wanted == "gigatoken":
        raise ConfigError(
            f"tokenizer.backend: gigatoken cannot be used with this tokenizer ({why}); set it to auto or tokenizers"
        )
    return ReferenceBackend(tokenizer, is_ordinary=is_ordinary, why=why)


def _without_specials(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer to which special tokens' texts are ordinary.

    They stay, so that all ids stay, under names that no text has without a ``NAME_MARK``.
    """
    parts = json.loads(tokenizer.to_str())
    vocabulary = parts["model"]["vocab"]
    for token in parts["added_tokens"]:
        if token["special"]:
            name = f"{NAME_MARK}{token['id']}{NAME_MARK}"
            if token["content"] in vocabulary:
                vocabulary[name] = vocabulary.pop(token["content"])
            token["content"] = name
    parts["post_processor"] = None
    return Tokenizer.from_str(json.dumps(parts))


def _resident_bytes() -> int | None:
    """Memory that this process holds now, where Linux tells."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * mmap.PAGESIZE


def _texts_of_tokens(tokenizer: Tokenizer) -> list[str]:
    """Tokens of the vocabulary, evenly drawn, in contexts: merges that a pre-tokenizer must allow or prevent."""
    size = tokenizer.get_vocab_size(with_added_tokens=False)
    drawn = [[index] for index in range(0, size, 1 + size // _NUM_DRAWN_TOKENS)]
    texts = tokenizer.decode_batch(drawn, skip_special_tokens=False)
    return [f"{text}a{text} {text}{text}\n{text}1" for text in texts]


def hard_texts(special: Sequence[str]) -> list[str]:
    """The fixed hard set: what tokenizers have disagreed on.

    Args:
        special: Texts of the tokenizer's added tokens.
    """
    runs = [
        unit * count
        for unit in (" ", "\n", "\t", "\r\n", "a", "1", "=", "é", "漢", "\u0301", "🙂")
        for count in (1, 3, 40)
    ]
    # One sentence for every block of 64 characters of the planes in use, surrogates left out.
    blocks = [
        "a".join(chr(code) for code in range(start, start + 64))
        for start in (*range(0, 0xD800, 64), *range(0xE000, 0x10000, 64), *range(0x1F000, 0x1FC00, 64))
    ]
    words = [
        "It's we'll I'D they'RE you've can't 'tis DON'T l'été",
        "1 12 123 1234 12345 3.14 1,000,000 0x1F 2e-5 ١٢٣ ² ½ Ⅷ",
        "  two  spaces\n\n\n and\tlines \r\n end  ",
        "日本語のテキスト、中文文本。한국어 텍스트 ภาษาไทย हिन्दी العربية עברית",
        "👩‍👩‍👧‍👦 🇩🇪 ❤️ 🏳️‍🌈 1️⃣",
        "e\u0301 \u00e9 n\u0303 \u1e69 s\u0323\u0307 \u0b47\u0b56",
        "\x00 \x01\x7f\x85\xa0\u200b\u200d\u2028\u2029\u3000\ufeff\ufffd\U000e0041\U0010ffff",
        "def f(x):\n    return {'a': [1, 2], \"b\": x**2}  # note\n\n\tif x != y && z || !w;",
        "<|im_start <|eot_id| <||> <| |> </s><s>[INST]",
    ]
    around = [f"a {text}b {text}{text} \n{text} é" for text in special]
    return ["", *runs, *blocks, *words, *around]
