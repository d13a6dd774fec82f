"""Conversations rendered by replaying recordings of their template, instead of running the template on each.

Plain conversations (messages have a role and a content, perhaps a reasoning, and whether they are trained) of one shape
whose texts answer the template's questions alike are printed alike, see ``recording``; so one run serves them all, and
the rest is joining strings. Where a turn begins and ends is found once per recording, on texts that are nothing but
names: no text of a row can be taken for a header or a stop. One row in 256, chosen by its content, is rendered by Jinja
as well, and a difference stops the run.

Cost: 1 us and 0.3 us a message, whatever the template; a new recording costs two renders. Memory: a few megabytes.
"""

import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from hbp_prep.errors import DataError
from hbp_prep.tokenization.recording import HIDDEN, RecordableTemplate, Shape, messages_of
from hbp_prep.tokenization.sampling import is_sampled
from hbp_prep.tokenization.specials import SpecialTexts
from hbp_prep.tokenization.stand_ins import Ask, Make, Unrecordable
from hbp_prep.tokenization.template import ChatTemplate, Span

# Noncharacters: around the names that stand for texts, and around generation blocks. A name is its message's number,
# with a plus if it is not the content's.
_NAME_OPEN, _NAME_CLOSE = "\ufdea", "\ufdeb"
NAMES = re.compile(rf"{_NAME_OPEN}([0-9]+)(\+?){_NAME_CLOSE}")
MARKS = ("\ufdec", "\ufded")
_MARKED = re.compile("|".join(MARKS))
_FLAGS = frozenset({"train", "weight"})
_MOST_PARTS = 500_000


class RenderedChat(NamedTuple):
    """A conversation as text.

    Attributes:
        spans: Its loss spans: [start, end) in characters, ascending, disjoint.
        num_own_specials: How many special tokens the template itself prints, where that is known.
        num_own_beginnings: How often it prints what special tokens begin with.
        own_specials: Where they lie, if any other must be encoded as ordinary text.
        num_special_texts: Texts of special tokens in the row's own strings.
    """

    text: str
    spans: tuple[Span, ...]
    num_own_specials: int | None = None
    num_own_beginnings: int = 0
    own_specials: tuple[Span, ...] | None = None
    num_special_texts: int = 0


SpansOf = Callable[[list[dict[str, Any]], str], tuple[str, Sequence[Span]] | None]


class _Printed(NamedTuple):
    """The end of a path: what is printed.

    Attributes:
        texts: All parts; empty where a text made of contents goes.
        holes: Place in ``texts`` and maker of each of those.
        spans: Loss spans as [first part, part behind).
        specials: The template's own special tokens: part, [start, end) in it.
        num_beginnings: How often the literals have what special tokens begin with.
    """

    texts: list[str]
    holes: list[tuple[int, Make]]
    spans: list[tuple[int, int]]
    specials: list[tuple[int, int, int]] | None
    num_beginnings: int

    def chat(self, contents: Sequence[str]) -> RenderedChat:
        texts, edges = self._filled(contents)
        spans = tuple([(edges[first], edges[behind]) for first, behind in self.spans])
        num_specials = None if self.specials is None else len(self.specials)
        return RenderedChat("".join(texts), spans, num_specials, self.num_beginnings)

    def own_specials(self, contents: Sequence[str]) -> tuple[Span, ...]:
        _, edges = self._filled(contents)
        return tuple([(edges[part] + start, edges[part] + end) for part, start, end in self.specials or ()])

    def _filled(self, contents: Sequence[str]) -> tuple[list[str], list[int]]:
        """The parts' texts, and where in the whole text each begins."""
        texts = self.texts.copy()
        for place, make in self.holes:
            texts[place] = make(contents)
        return texts, list(accumulate(map(len, texts), initial=0))


class _Question:
    """A fork of paths."""

    __slots__ = ("answers", "ask")

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.answers: dict[bool, _Node] = {}


# ``None``: conversations on this path are not replayed.
_Node = _Question | _Printed | None


class Replay:
    """Renders plain conversations with one template."""

    def __init__(
        self,
        template: ChatTemplate,
        spans_of: SpansOf,
        specials: SpecialTexts | None,
    ) -> None:
        """Nothing is recorded yet.

        Args:
            spans_of: The text and loss spans of messages, whose texts are names (``NAMES``), printed as a text (with
                ``MARKS`` around generation blocks); ``None`` if the spans are not proven.
            specials: The tokenizer's, if those in its literals tell something of a whole text.
        """
        self._template = template
        self._recordable = RecordableTemplate(template.source, template.variables, MARKS)
        self._spans_of = spans_of
        self._special_texts = specials
        self._hidden = frozenset({"content", "reasoning_content"} if template.reads_reasoning else {"content"})
        self._paths: dict[Shape, _Node] = {}
        self._num_parts = 0

    def render(self, messages: Sequence[dict[str, Any]]) -> RenderedChat | None:
        """The conversation's text and loss spans; ``None`` if it must be rendered otherwise.

        Raises:
            DataError: a sampled row is printed otherwise by Jinja.
        """
        if (seen := self._seen(messages)) is None or (printed := self._printed(*seen)) is None:
            return None
        chat = printed.chat(seen[1])
        if is_sampled(chat.text) and self._template.render(messages, {}) != chat.text:
            raise DataError(
                f"{self._template.name}: the row that begins {chat.text[:80]!r} is printed otherwise when the template "
                "is replayed; this is an error of hbp-prep, please report it"
            )
        return chat

    def own_specials(self, messages: Sequence[dict[str, Any]]) -> tuple[Span, ...]:
        """Where the template's own special tokens lie in a chat whose ``num_own_specials`` is known."""
        seen = self._seen(messages)
        printed = None if seen is None else self._printed(*seen)
        assert seen is not None and printed is not None
        return printed.own_specials(seen[1])

    def _seen(self, messages: Sequence[dict[str, Any]]) -> tuple[Shape, list[str]] | None:
        """Shape and texts; ``None`` if there is more to the messages."""
        shape: list[Any] = []
        texts: list[str] = []
        for message in messages:
            content = message.get("content")
            if type(content) is not str:
                return None
            if len(message) == 2:
                shape.append(message["role"])
                texts.append(content)
                continue
            keys: list[tuple[str, Any, type]] = []
            for key, value in message.items():
                kind = type(value)
                if key in self._hidden and kind is str:
                    keys.append((key, HIDDEN, str))
                    texts.append(value)
                elif key == "role" or (key in _FLAGS and kind in (bool, int)):
                    keys.append((key, value, kind))
                else:
                    return None
            shape.append(tuple(keys))
        return tuple(shape), texts

    def _printed(self, shape: Shape, texts: Sequence[str]) -> _Printed | None:
        try:
            node = self._paths[shape]
            while isinstance(node, _Question):
                node = node.answers[node.ask(texts)]
        except KeyError:
            return self._record(shape, texts)
        return node

    def _record(self, shape: Shape, texts: Sequence[str]) -> _Printed | None:
        """Run the template, and keep its path."""
        if self._num_parts > _MOST_PARTS:
            self._paths.clear()
            self._num_parts = 0
        questions: Sequence[tuple[Ask, bool]] = ()
        printed = None
        try:
            recording = self._recordable.record(shape, texts)
            questions = recording.questions
            printed = self._located(shape, recording.parts)
        except Unrecordable as refusal:
            questions = refusal.questions
        self._num_parts += 1 + len(questions) + (0 if printed is None else len(printed.texts))
        branches: dict[Any, _Node] = self._paths
        answer: Any = shape
        for ask, following in questions:
            node = branches.setdefault(answer, _Question(ask))
            assert isinstance(node, _Question)
            branches, answer = node.answers, following
        branches[answer] = printed
        return printed

    def _located(self, shape: Shape, parts: Sequence[str | Make]) -> _Printed | None:
        """The parts, cut where loss spans begin and end; ``None`` if those are not proven."""
        if any(char in part for part in parts if isinstance(part, str) for char in (_NAME_OPEN, _NAME_CLOSE)):
            return None
        names = _names(shape)
        named = [part if isinstance(part, str) else part(names) for part in parts]
        found = self._spans_of(messages_of(shape, names), "".join(named))
        if found is None or not all(named):
            return None
        text, spans = found
        edges = sorted({edge for span in spans for edge in span})
        texts: list[str] = []
        holes: list[tuple[int, Make]] = []
        place_of_edge: dict[int, int] = {}
        position = 0
        for part, name in zip(parts, named, strict=True):
            if not isinstance(part, str):
                place_of_edge[position] = len(texts)
                holes.append((len(texts), part))
                texts.append("")
                position += len(name)
                place_of_edge[position] = len(texts)
                continue
            literal = _MARKED.sub("", part)
            cuts = [position, *(edge for edge in edges if position < edge < position + len(literal))]
            for start, end in zip(cuts, [*cuts[1:], position + len(literal)], strict=True):
                place_of_edge[start] = len(texts)
                texts.append(literal[start - position : end - position])
            position += len(literal)
            place_of_edge[position] = len(texts)
        if position != len(text) or not place_of_edge.keys() >= set(edges):
            return None
        literals = [_MARKED.sub("", part) for part in parts if isinstance(part, str)]
        specials = self._special_texts
        return _Printed(
            texts=texts,
            holes=holes,
            spans=[(place_of_edge[start], place_of_edge[end]) for start, end in spans],
            specials=self._specials(literals, texts),
            num_beginnings=0 if specials is None else sum(map(specials.count_beginnings, literals)),
        )

    def _specials(self, literals: Sequence[str], texts: Sequence[str]) -> list[tuple[int, int, int]] | None:
        """The literals' special tokens; ``None`` if that is not known, or one lies across the edge of a loss span."""
        if self._special_texts is None:
            return None
        find = self._special_texts.find
        found = [(part, start, end) for part, text in enumerate(texts) for start, end in find(text)]
        return found if len(found) == sum(len(find(literal)) for literal in literals) else None


def _names(shape: Shape) -> list[str]:
    """What stands for the texts of a shape."""
    return [
        f"{_NAME_OPEN}{number}{'' if key == 'content' else '+'}{_NAME_CLOSE}"
        for number, message in enumerate(shape)
        for key in (["content"] if isinstance(message, str) else [key for key, value, _ in message if value is HIDDEN])
    ]
