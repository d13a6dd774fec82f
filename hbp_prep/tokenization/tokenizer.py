"""The chat tokenizer: conversations to token ids and loss masks, by rendering, loss spans and one encoding each."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from hbp_prep.corpus.types import Conversation
from hbp_prep.errors import ConfigError
from hbp_prep.fingerprint import fingerprint
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.suggest import did_you_mean
from hbp_prep.tokenization.backends import BACKENDS
from hbp_prep.tokenization.byte_symbols import to_bytes
from hbp_prep.tokenization.encoding import EncodedSample, Encoder
from hbp_prep.tokenization.folder import TokenizerFolder, find_template, read_tokenizer_folder
from hbp_prep.tokenization.replay import RenderedChat
from hbp_prep.tokenization.spans import LOSS_ON, Renderer
from hbp_prep.tokenization.specials import SpecialTexts
from hbp_prep.tokenization.template import ChatTemplate, Span

SPECIAL_TOKENS_IN_CONTENT = ("escape", "allow", "reject")

_NO_TARGET = RowRejected(Reason.NO_LOSS_TOKENS, "none of the tokens is a target")

# Raised when the same inputs would give other tokens or masks than before.
_METHOD_VERSION = 3


@dataclass(frozen=True, kw_only=True)
class TokenizationSpec:
    """How conversations become tokens.

    Attributes:
        tokenizer: Path of a folder with ``tokenizer.json`` and ``tokenizer_config.json``.
        chat_template: ``None`` for the folder's own, a built-in's name (``tulu3``, ``chatml``), or a ``.jinja`` file.
        loss_on: ``all`` assistant turns are trained, or the ``last`` one only.
        special_tokens_in_content: Text such as ``<|eot_id|>`` in a message is encoded as ordinary text (``escape``),
            becomes the special token (``allow``, as with Hugging Face), or its row is rejected (``reject``).
        backend: ``tokenizers`` (with Jinja2: the references), ``gigatoken``, or ``auto``: the fast ones where they are
            proven. Results are the same.
    """

    tokenizer: str
    chat_template: str | None = None
    loss_on: str = "all"
    special_tokens_in_content: str = "escape"
    backend: str = "auto"

    def __post_init__(self) -> None:
        for key, value, known in (
            ("loss_on", self.loss_on, LOSS_ON),
            ("special_tokens_in_content", self.special_tokens_in_content, SPECIAL_TOKENS_IN_CONTENT),
            ("backend", self.backend, BACKENDS),
        ):
            if value not in known:
                raise ConfigError(f"{key}: {value!r} is not known{did_you_mean(value, known)}")


class ChatTokenizer:
    """A tokenizer with its chat template.

    Attributes:
        spec: What it was loaded from.
        fingerprint: Changes with everything that its output depends on; contents, not names.
        info: The manifest's ``tokenizer`` entry.
    """

    def __init__(self, spec: TokenizationSpec, folder: TokenizerFolder, template: ChatTemplate) -> None:
        added = folder.tokenizer.get_added_tokens_decoder()
        specials = {token.content for token in added.values() if token.special} | set(folder.special_tokens.values())
        eos = folder.special_tokens["eos_token"]
        self.spec = spec
        self._folder = folder
        self._tokenizer = folder.tokenizer
        self._added = {index: token.content for index, token in added.items()}
        stop_texts = [eos, *sorted(specials - {eos}, key=lambda text: (-len(text), text))]
        self._template = template
        self._special_texts = SpecialTexts(sorted(specials))
        self._renderer = Renderer(
            template,
            stop_texts,
            loss_on=spec.loss_on,
            specials=self._special_texts if self._special_texts.are_apart else None,
        )
        self._around_text = _around_text(folder)
        self._special_ids = [index for text in specials if (index := self._tokenizer.token_to_id(text)) is not None]
        self._encoder: Encoder | None = None
        tokenizer_fingerprint = fingerprint([folder.sha256, folder.special_tokens, tokenizers.__version__])
        template_fingerprint = fingerprint(template.source)
        self.fingerprint = fingerprint(
            [
                _METHOD_VERSION,
                tokenizer_fingerprint,
                template_fingerprint,
                spec.loss_on,
                spec.special_tokens_in_content,
            ]
        )
        self.info: dict[str, Any] = {
            "name": folder.path.name,
            "vocab_size": 1 + max(folder.tokenizer.get_vocab(with_added_tokens=True).values()),
            "bos_id": self._special_id("bos_token"),
            "eos_id": self._special_id("eos_token"),
            "pad_id": self._special_id("pad_token"),
            "tokenizer_fingerprint": tokenizer_fingerprint,
            "template": template.name,
            "template_fingerprint": template_fingerprint,
        }

    @classmethod
    def load(cls, spec: TokenizationSpec) -> "ChatTokenizer":
        """Read the folder and the template, and learn the template's shape.

        Raises:
            DataError: the tokenizer's folder is missing or damaged, or its eos token is.
            ConfigError: there is no such template, it has a syntax error, or loss spans cannot be derived from it.
        """
        folder = read_tokenizer_folder(Path(spec.tokenizer))
        source, name = find_template(folder, spec.chat_template)
        template = ChatTemplate(source, name, folder.special_tokens)
        return cls(spec, folder, template)

    def encode_batch(self, conversations: Sequence[Conversation]) -> list[EncodedSample | RowRejected]:
        """Tokens and loss masks in the order of ``conversations``; in place of a row that cannot be used, why."""
        results: list[EncodedSample | RowRejected] = []
        chats: list[RenderedChat] = []
        places: list[int] = []
        for conversation in conversations:
            try:
                chats.append(self.render(conversation))
            except RowRejected as rejected:
                results.append(rejected)
                continue
            places.append(len(results))
            results.append(_NO_TARGET)
        foreign: list[tuple[int, RenderedChat]] = []
        for place, chat, sample in zip(places, chats, self.encoder.encode(chats), strict=True):
            if isinstance(sample, EncodedSample) and chat.num_own_specials not in (None, sample.num_special_tokens):
                # Its text did not show it, but not all of its special tokens are the template's own.
                try:
                    foreign.append((place, self._told_apart(conversations[place], chat)))
                except RowRejected as rejected:
                    results[place] = rejected
            else:
                results[place] = _trained(sample)
        for (place, _), sample in zip(foreign, self.encoder.encode([chat for _, chat in foreign]), strict=True):
            results[place] = _trained(sample)
        return results

    @property
    def encoder(self) -> Encoder:
        """Made, and its backend proven, when first asked for.

        Raises:
            ConfigError: the backend that is demanded cannot be used with this tokenizer.
        """
        if self._encoder is None:
            self._encoder = Encoder(self._folder, self.spec.backend, self._special_ids)
        return self._encoder

    def render(self, conversation: Conversation) -> RenderedChat:
        """The conversation as the text that is encoded, with its loss spans.

        Raises:
            RowRejected: why the row cannot be used.
        """
        text = conversation.text
        chat = self._renderer.render(conversation) if text is None else self._document(text)
        if not chat.text.isascii():
            _check_surrogates(chat.text)
        specials = self._special_texts
        if chat.num_own_specials is None:
            may_have_others = specials.may_touch(conversation)
        else:
            # Counting two characters is cheap; few rows have more of them, and fewer of these another special text.
            has_more = specials.count_beginnings(chat.text) != chat.num_own_beginnings
            may_have_others = has_more and len(specials.find(chat.text)) != chat.num_own_specials
        return self._told_apart(conversation, chat) if may_have_others else chat

    def _told_apart(self, conversation: Conversation, chat: RenderedChat) -> RenderedChat:
        """The chat, with what the policy makes of special tokens' text in the row."""
        policy = self.spec.special_tokens_in_content
        if policy == "reject":
            self._special_texts.check_absent(conversation)
        own_specials = None
        if policy == "escape" and conversation.text is not None:
            own_specials = self._edges(chat.text)
        elif policy == "escape" and chat.num_own_specials is not None:
            own_specials = self._renderer.own_specials(conversation)
        elif policy == "escape":
            own_specials = self._special_texts.own_spans(self._template, conversation, chat.text)
        num_special_texts = self._special_texts.count(conversation)
        return chat._replace(num_own_specials=None, own_specials=own_specials, num_special_texts=num_special_texts)

    def _document(self, text: str) -> RenderedChat:
        """Plain text, all of it trained: between what the tokenizer itself puts around a text, and eos at the end."""
        before, after = self._around_text
        document = f"{before}{text}{after}"
        specials = self._special_texts
        num_own = sum(len(specials.find(text)) for text in (before, after)) if specials.are_apart else None
        num_beginnings = sum(map(specials.count_beginnings, (before, after)))
        return RenderedChat(document, ((0, len(document)),), num_own, num_beginnings)

    def _edges(self, document: str) -> tuple[Span, ...]:
        """Where a document's own special tokens are."""
        before, after = self._around_text
        return ((0, len(before)), (len(document) - len(after), len(document)))

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Every token as text, for people to read; joined, they are the whole text.

        A character whose bytes are split over tokens stands with the last of them.
        """
        if not self._folder.is_byte_level:
            return [self._tokenizer.decode([index], skip_special_tokens=False) for index in ids]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        texts = [decoder.decode(self._token_bytes(index)) for index in ids]
        if texts:
            texts[-1] += decoder.decode(b"", final=True)
        return texts

    def _token_bytes(self, index: int) -> bytes:
        if index in self._added:
            return self._added[index].encode()
        token = self._tokenizer.id_to_token(index)
        return b"" if token is None else to_bytes(token)

    def _special_id(self, name: str) -> int | None:
        text = self._folder.special_tokens.get(name)
        return None if text is None else self._tokenizer.token_to_id(text)


def _trained(sample: EncodedSample | RowRejected) -> EncodedSample | RowRejected:
    return sample if isinstance(sample, RowRejected) or sample.loss_mask.any() else _NO_TARGET


def _check_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"U+{ord(text[error.start]):04X}"
        raise RowRejected(Reason.LONE_SURROGATE, f"the text has the lone surrogate {code}") from None


def _around_text(folder: TokenizerFolder) -> tuple[str, str]:
    """The special tokens before and after a document of plain text.

    Before: what the tokenizer's post-processor puts there, or bos where ``tokenizer_config.json`` says
    ``add_bos_token``; nothing for tokenizers without that habit. After: what the post-processor puts there, else eos.
    """
    tokenizer = folder.tokenizer
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a", add_special_tokens=True).ids
    added = tokenizer.get_added_tokens_decoder()
    start = next((at for at in range(len(full)) if full[at : at + len(bare)] == bare), 0)
    before, after = (
        "".join(added[index].content for index in part if index in added)
        for part in (full[:start], full[start + len(bare) :])
    )
    if not before and folder.config.get("add_bos_token") is True:
        before = folder.special_tokens.get("bos_token", "")
    return before, after or folder.special_tokens["eos_token"]
