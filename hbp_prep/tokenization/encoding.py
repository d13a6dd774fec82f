"""Rendered chats to token ids and loss masks, a batch at a time.

Every token of a byte-level tokenizer is a known string of bytes, so the sum of the tokens' lengths gives their exact
place in the text, from ids alone: two look-ups a span, a few array operations a batch. Texts that the normaliser would
change, and tokenizers of other kinds, take the character offsets of the ``tokenizers`` library, 1 us a token.
Memory: about 30 bytes a token of a batch, so batches are bounded by characters.
"""

import json
import unicodedata
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization.backends import NAME_MARK, Backend, TokenIds, choose_backend
from hbp_prep.tokenization.folder import TokenizerFolder
from hbp_prep.tokenization.kernels import mark_targets
from hbp_prep.tokenization.replay import RenderedChat
from hbp_prep.tokenization.template import Span

BATCH_CHARS = 1_000_000


class EncodedSample(NamedTuple):
    """A tokenised conversation.

    Attributes:
        input_ids: int32[n].
        loss_mask: bool[n], true where the token is a target; never on the first token.
        num_special_texts: Texts of special tokens in the row's own strings.
        num_special_tokens: Special tokens among the ids.
    """

    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    num_special_texts: int = 0
    num_special_tokens: int = 0


class Encoder:
    """Encodes with one tokenizer, without adding special tokens to those that the template has printed.

    A token is a target if it has a character of a span, or lies between two that have. This is the rule of
    transformers' ``return_assistant_tokens_mask``, completed for characters that are split over several tokens (all of
    them count) and for edges at characters that a normaliser has merged into others.
    """

    def __init__(self, folder: TokenizerFolder, backend: str, special_ids: Sequence[int]) -> None:
        """Choose the backend; ``special_ids`` are those of special tokens.

        Raises:
            ConfigError: see :func:`choose_backend`.
        """
        self._tokenizer = folder.tokenizer
        self._token_bytes = _token_bytes(folder)
        self._is_special = np.zeros(len(self._token_bytes), np.bool_)
        self._is_special[list(special_ids)] = True
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
        self.why_not_fast = self._backend.why

    @cached_property
    def _ordinary_backend(self) -> Backend:
        """Made when the first row needs it."""
        wanted = "tokenizers" if self.backend_name == "tokenizers" else "auto"
        return choose_backend(self._tokenizer, wanted, is_byte_exact=self._is_byte_exact, is_ordinary=True)

    def encode(self, chats: Sequence[RenderedChat]) -> list[EncodedSample | RowRejected]:
        """Encode in order; in place of a chat that cannot be encoded, why."""
        results: list[EncodedSample | RowRejected | None] = [None] * len(chats)
        exact = [place for place, chat in enumerate(chats) if self._is_exact(chat.text)]
        plain = [place for place in exact if chats[place].own_specials is None]
        escaped = [
            place
            for place in exact
            if chats[place].own_specials is not None and self._is_separable and NAME_MARK not in chats[place].text
        ]
        for places, encode in ((plain, self._encode_plain), (escaped, self._encode_escaped)):
            for batch in _batches(places, chats):
                wanted = [chats[place] for place in batch]
                for place, sample in zip(batch, self._samples(wanted, *encode(wanted)), strict=True):
                    results[place] = sample
        return [
            self._encode_by_offsets(chat) if result is None else result
            for chat, result in zip(chats, results, strict=True)
        ]

    def _is_exact(self, text: str) -> bool:
        """Whether the tokens' bytes are the text's."""
        return self._is_byte_exact and (not self._is_nfc or text.isascii() or unicodedata.is_normalized("NFC", text))

    def _encode_plain(self, chats: Sequence[RenderedChat]) -> TokenIds:
        return self._backend.encode([chat.text for chat in chats])

    def _encode_escaped(self, chats: Sequence[RenderedChat]) -> TokenIds:
        """Each chat in pieces: between the template's own special tokens, others are ordinary text."""
        pieces = [
            (number, chat.text[start:end], is_ordinary)
            for number, chat in enumerate(chats)
            for start, end, is_ordinary in _pieces(chat.own_specials or (), len(chat.text))
        ]
        is_ordinary = np.array([piece[2] for piece in pieces], np.bool_)
        of_chat = np.array([piece[0] for piece in pieces], np.int64)
        sizes = np.zeros(len(pieces), np.int64)
        parts: list[NDArray[np.int32]] = []
        places: list[NDArray[np.int64]] = []
        for which, backend in ((is_ordinary, self._ordinary_backend), (~is_ordinary, self._backend)):
            chosen = np.flatnonzero(which)
            ids, offsets = backend.encode([pieces[place][1] for place in chosen.tolist()])
            sizes[chosen] = np.diff(offsets)
            parts.append(ids)
            places.append(np.repeat(chosen, sizes[chosen]))
        order = np.argsort(np.concatenate(places), kind="stable")
        num_tokens = np.zeros(len(chats) + 1, np.int64)
        np.add.at(num_tokens, 1 + of_chat, sizes)
        return TokenIds(np.concatenate(parts)[order], np.cumsum(num_tokens))

    def _samples(
        self, chats: Sequence[RenderedChat], ids: NDArray[np.int32], offsets: NDArray[np.int64]
    ) -> list[EncodedSample | None]:
        """Masks by running sums of the tokens' bytes; ``None`` where these do not add up to the text."""
        span_offsets = np.zeros(len(chats) + 1, np.int64)
        np.cumsum([len(chat.spans) for chat in chats], out=span_offsets[1:])
        spans: list[Span] = []
        expected = [_append_bytes(chat, spans) for chat in chats]
        mask = np.empty(len(ids), np.bool_)
        found = np.empty((2, len(chats)), np.int64)
        mark_targets(
            ids,
            offsets,
            self._token_bytes,
            self._is_special,
            span_offsets,
            np.array(spans, np.int64).reshape(-1, 2),
            mask,
            *found,
        )
        bounds = offsets.tolist()
        return [
            EncodedSample(ids[start:stop], mask[start:stop], chat.num_special_texts, num_specials)
            if num_bytes == num_expected
            else None
            for chat, start, stop, num_expected, num_bytes, num_specials in zip(
                chats, bounds, bounds[1:], expected, *found.tolist(), strict=False
            )
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
        array = np.array(ids, np.int32)
        if self._is_exact(chat.text):
            # The same measure as on the fast path, whatever a tokenizer's post-processor does to offsets.
            (sample,) = self._samples([chat], array, np.array([0, len(ids)]))
            if sample is not None:
                return sample
        chars = np.concatenate(offsets) if offsets else np.zeros((0, 2), np.int64)
        num_specials = int(np.count_nonzero(self._is_special[array]))
        return EncodedSample(array, mask_by_chars(chars, chat.spans), chat.num_special_texts, num_specials)


def mask_by_chars(offsets: NDArray[np.int64], spans: Sequence[Span]) -> NDArray[np.bool_]:
    """bool[n] from the tokens' characters, int64[n, 2]: for every span, from the first to the last token in it."""
    mask = np.zeros(len(offsets), np.bool_)
    for start, end in spans:
        inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
        if len(inside):
            mask[inside[0] : inside[-1] + 1] = True
    mask[:1] = False
    return mask


def _append_bytes(chat: RenderedChat, spans: list[Span]) -> int:
    """Append the loss spans in bytes; returns the text's bytes."""
    text = chat.text
    if text.isascii():
        spans += chat.spans
        return len(text)
    position, num_bytes = 0, 0
    for start, end in chat.spans:
        first = num_bytes + len(text[position:start].encode())
        num_bytes = first + len(text[start:end].encode())
        spans.append((first, num_bytes))
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


def _token_bytes(folder: TokenizerFolder) -> NDArray[np.uint16]:
    """Bytes of every token of a byte-level tokenizer, uint16[vocabulary]: its text has one symbol for each."""
    vocabulary = folder.tokenizer.get_vocab(with_added_tokens=True)
    lengths = np.zeros(1 + max(vocabulary.values()), np.uint16)
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
