"""Text to token ids and loss masks with the ``tokenizers`` library: one encoding of the whole text, masks from offsets.

Cost: about 1 us a token on one core, nearly all of it in the library; ids come back as Python lists (0.03 us a token),
masks cost two look-ups a span. Memory: about 150 bytes a token of a batch, so batches are bounded by characters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from hbp_prep.tokenization.spans import RenderedChat
from hbp_prep.tokenization.template import Span

BATCH_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class EncodedSample:
    """A tokenised conversation.

    Attributes:
        input_ids: int32[n].
        loss_mask: bool[n], true where the token is a target; never on the first token.
    """

    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]


def encode_chats(tokenizer: Tokenizer, chats: Sequence[RenderedChat]) -> Iterator[EncodedSample]:
    """Encode in order, without adding special tokens to those that the template has printed."""
    for batch in _batches(chats):
        encodings = tokenizer.encode_batch([chat.text for chat in batch], add_special_tokens=False)
        for chat, encoding in zip(batch, encodings, strict=True):
            yield EncodedSample(np.array(encoding.ids, np.int32), loss_mask(encoding, chat.spans))


def loss_mask(encoding: Encoding, spans: Sequence[Span]) -> NDArray[np.bool_]:
    """bool[n]: for every span, all tokens from the first to the last that has a character of it.

    This is the rule of transformers' ``return_assistant_tokens_mask``, completed for characters that are split over
    several tokens (all of them count) and for edges at characters that a normaliser has merged into others.
    """
    mask = np.zeros(len(encoding), np.bool_)
    for span in spans:
        first, stop = _tokens_of(encoding, span)
        mask[first:stop] = True
    mask[:1] = False
    return mask


def _tokens_of(encoding: Encoding, span: Span) -> tuple[int, int]:
    """Token range [first, stop) that overlaps the characters [start, end)."""
    start, end = span
    first, last = encoding.char_to_token(start), encoding.char_to_token(end - 1)
    if first is None or last is None:
        return _tokens_by_scan(encoding, span)
    stop = last + 1
    while stop < len(encoding) and _starts_before(encoding, stop, end):
        stop += 1
    return first, stop


def _starts_before(encoding: Encoding, token: int, end: int) -> bool:
    """Whether the token has characters before ``end`` (a character may be split over several tokens)."""
    chars = encoding.token_to_chars(token)
    return chars is not None and bool(chars[0] < end)


def _tokens_by_scan(encoding: Encoding, span: Span) -> tuple[int, int]:
    """The same from all offsets: an edge of the span is a character that no token claims."""
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    inside = np.flatnonzero((offsets[:, 0] < span[1]) & (offsets[:, 1] > span[0]))
    return (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)


def _batches(chats: Sequence[RenderedChat]) -> Iterator[list[RenderedChat]]:
    """Consecutive runs of at most ``BATCH_CHARS`` characters; a longer chat comes alone."""
    batch: list[RenderedChat] = []
    num_chars = 0
    for chat in chats:
        if batch and num_chars + len(chat.text) > BATCH_CHARS:
            yield batch
            batch, num_chars = [], 0
        batch.append(chat)
        num_chars += len(chat.text)
    if batch:
        yield batch
