"""Rendered chats to token ids and loss masks, a batch at a time.

Every token of a byte-level tokenizer is a known string of bytes, so the sum of the tokens' lengths gives their exact
place in the text, from ids alone: two look-ups a span, a few array operations a batch. Texts that the normaliser would
change, and tokenizers of other kinds, take the character offsets of the ``tokenizers`` library, 1 us a token.
Memory: about 30 bytes a token of a batch, so batches are bounded by characters.
"""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization.backends import choose_backend
from hbp_prep.tokenization.folder import TokenizerFolder
from hbp_prep.tokenization.spans import RenderedChat
from hbp_prep.tokenization.template import Span

BATCH_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class EncodedSample:
    """A tokenised conversation.

    Attributes:
        input_ids: int32[n].
        loss_mask: bool[n], true where the token is a target; never on the first token.
        num_special_texts: Texts of special tokens in the row's own strings.
    """

    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    num_special_texts: int = 0


class Encoder:
    """Encodes with one tokenizer, without adding special tokens to those that the template has printed.

    A token is a target if it has a character of a span, or lies between two that have. This is the rule of
    transformers' ``return_assistant_tokens_mask``, completed for characters that are split over several tokens (all of
    them count) and for edges at characters that a normaliser has merged into others.
    """

    def __init__(self, folder: TokenizerFolder, backend: str) -> None:
        """Choose the backend.

        Raises:
            ConfigError: see :func:`choose_backend`.
        """
        self._tokenizer = folder.tokenizer
        self._token_lengths = _token_lengths(folder)
        steps = _steps(self._tokenizer.normalizer)
        self._is_byte_exact = folder.is_byte_level and steps <= {"NFC"}
        self._is_nfc = "NFC" in steps
        added = self._tokenizer.get_added_tokens_decoder().values()
        self._is_separable = folder.is_byte_level and not any(
            token.lstrip or token.rstrip or token.single_word or (token.special and token.normalized and steps)
            for token in added
        )
        self._backend = choose_backend(self._tokenizer, backend, is_byte_exact=self._is_byte_exact)
        self.backend_name = self._backend.name

    def encode(self, chats: Sequence[RenderedChat]) -> list[EncodedSample | RowRejected]:
        """Encode in order; in place of a chat that cannot be encoded, why."""
        results: list[EncodedSample | RowRejected | None] = [None] * len(chats)
        places = [place for place, chat in enumerate(chats) if chat.own_specials is None and self._is_exact(chat.text)]
        for batch in _batches(places, chats):
            samples = self._encode_by_bytes([chats[place] for place in batch])
            for place, sample in zip(batch, samples, strict=True):
                results[place] = sample
        return [
            self._encode_by_offsets(chat) if result is None else result
            for chat, result in zip(chats, results, strict=True)
        ]

    def _is_exact(self, text: str) -> bool:
        """Whether the tokens' bytes are the text's."""
        return self._is_byte_exact and (not self._is_nfc or text.isascii() or unicodedata.is_normalized("NFC", text))

    def _encode_by_bytes(self, chats: Sequence[RenderedChat]) -> list[EncodedSample | None]:
        """``None`` where the tokens do not add up to the text."""
        ids, offsets = self._backend.encode([chat.text for chat in chats])
        edges = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self._token_lengths[ids], out=edges[1:])
        begins = edges[offsets]
        starts: list[int] = []
        ends: list[int] = []
        is_whole: list[bool] = []
        for chat, begin, following in zip(chats, begins.tolist(), begins[1:].tolist(), strict=False):
            num_bytes = _append_bytes(chat, begin, starts, ends)
            is_whole.append(num_bytes == following - begin)
        mask = _mask(edges[:-1], edges[1:], np.array(starts, np.int64), np.array(ends, np.int64))
        mask[offsets[:-1][np.diff(offsets) > 0]] = False
        bounds = offsets.tolist()
        return [
            EncodedSample(ids[start:stop], mask[start:stop], chat.num_special_texts) if whole else None
            for chat, whole, start, stop in zip(chats, is_whole, bounds, bounds[1:], strict=False)
        ]

    def _encode_by_offsets(self, chat: RenderedChat) -> EncodedSample | RowRejected:
        """By the reference; between the template's own special tokens, others are ordinary text."""
        pieces: list[tuple[int, int, bool]] = [(0, len(chat.text), False)]
        if chat.own_specials is not None:
            if not self._is_separable:
                why = "special tokens' text in a message cannot be kept from acting with this tokenizer"
                return RowRejected(Reason.BAD_CONTENT, why)
            pieces = _pieces(chat.own_specials, len(chat.text))
        ids: list[int] = []
        offsets: list[NDArray[np.int64]] = []
        try:
            for start, end, is_escaped in pieces:
                self._tokenizer.encode_special_tokens = is_escaped
                encoding = self._tokenizer.encode(chat.text[start:end], add_special_tokens=False)
                ids += encoding.ids
                offsets.append(np.array(encoding.offsets, np.int64).reshape(-1, 2) + start)
        finally:
            self._tokenizer.encode_special_tokens = False
        chars = np.concatenate(offsets) if offsets else np.zeros((0, 2), np.int64)
        if self._is_exact(chat.text):
            # The same measure as on the fast path, whatever a tokenizer's post-processor does to offsets.
            sizes = np.cumsum(self._token_lengths[ids], dtype=np.int64)
            byte_starts: list[int] = []
            byte_ends: list[int] = []
            if _append_bytes(chat, 0, byte_starts, byte_ends) == (sizes[-1] if len(sizes) else 0):
                edges = np.concatenate([[0], sizes])
                mask = _mask(edges[:-1], edges[1:], np.array(byte_starts, np.int64), np.array(byte_ends, np.int64))
                mask[:1] = False
                return EncodedSample(np.array(ids, np.int32), mask, chat.num_special_texts)
        return EncodedSample(np.array(ids, np.int32), mask_by_chars(chars, chat.spans), chat.num_special_texts)


def mask_by_chars(offsets: NDArray[np.int64], spans: Sequence[Span]) -> NDArray[np.bool_]:
    """bool[n] from the tokens' characters, int64[n, 2]: for every span, from the first to the last token in it."""
    mask = np.zeros(len(offsets), np.bool_)
    for start, end in spans:
        inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
        if len(inside):
            mask[inside[0] : inside[-1] + 1] = True
    mask[:1] = False
    return mask


def _mask(
    token_starts: NDArray[np.int64], token_ends: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """bool[n]: tokens that overlap one of the spans [starts, ends); all in bytes, tokens without a gap."""
    changes = np.zeros(len(token_starts) + 1, np.int32)
    np.add.at(changes, np.searchsorted(token_ends, starts, "right"), 1)
    np.add.at(changes, np.searchsorted(token_starts, ends, "left"), -1)
    return np.cumsum(changes[:-1]) > 0


def _append_bytes(chat: RenderedChat, begin: int, starts: list[int], ends: list[int]) -> int:
    """Append the spans' edges in bytes, ``begin`` added; returns the text's bytes."""
    text = chat.text
    if text.isascii():
        for start, end in chat.spans:
            starts.append(begin + start)
            ends.append(begin + end)
        return len(text)
    position, num_bytes = 0, 0
    for start, end in chat.spans:
        num_bytes += len(text[position:start].encode())
        starts.append(begin + num_bytes)
        num_bytes += len(text[start:end].encode())
        ends.append(begin + num_bytes)
        position = end
    return num_bytes + len(text[position:].encode())


def _pieces(own_specials: Sequence[Span], length: int) -> list[tuple[int, int, bool]]:
    """(start, end, special tokens are ordinary text) without a gap; empty ones left out."""
    pieces = []
    position = 0
    for start, end in own_specials:
        pieces += [(position, start, True), (start, end, False)]
        position = end
    pieces.append((position, length, True))
    return [piece for piece in pieces if piece[0] < piece[1]]


def _token_lengths(folder: TokenizerFolder) -> NDArray[np.int32]:
    """Bytes of every token of a byte-level tokenizer, int32[vocabulary]: its text has one symbol for each."""
    vocabulary = folder.tokenizer.get_vocab(with_added_tokens=True)
    lengths = np.zeros(1 + max(vocabulary.values()), np.int32)
    lengths[np.fromiter(vocabulary.values(), np.int64)] = np.fromiter(map(len, vocabulary), np.int64)
    for index, token in folder.tokenizer.get_added_tokens_decoder().items():
        lengths[index] = len(token.content.encode())
    return lengths


def _steps(normalizer: Any) -> set[str]:
    """The kinds of a normaliser's steps."""
    if normalizer is None:
        return set()
    pending, kinds = [json.loads(normalizer.__getstate__())], set()
    while pending:
        step = pending.pop()
        if step["type"] == "Sequence":
            pending += step["normalizers"]
        else:
            kinds.add(step["type"])
    return kinds


def _batches(places: Sequence[int], chats: Sequence[RenderedChat]) -> list[list[int]]:
    """Consecutive runs of at most ``BATCH_CHARS`` characters; a longer chat comes alone."""
    batches: list[list[int]] = []
    num_chars = 0
    for place in places:
        size = len(chats[place].text)
        if not batches or num_chars + size > BATCH_CHARS:
            batches.append([])
            num_chars = 0
        batches[-1].append(place)
        num_chars += size
    return batches
