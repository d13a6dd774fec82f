"""Conversations rendered by replaying recordings of their template, instead of running the template on each.

Plain conversations (every message has a role and a content, nothing else) of the same roles whose contents answer the
template's questions alike are printed alike, see ``recording``; so one run serves them all, and the rest is joining
strings. Where a turn begins and ends is found once per recording, on contents that are nothing but names: no text of a
row can be taken for a header or a stop. One row in 256, chosen by its content, is rendered by Jinja as well, and a
difference stops the run.

Cost: 1 us and 0.3 us a message, whatever the template; a new recording costs two renders. Memory: a few megabytes.
"""

import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from hbp_prep.errors import DataError
from hbp_prep.tokenization.recording import Ask, Make, RecordableTemplate, Unrecordable
from hbp_prep.tokenization.sampling import is_sampled
from hbp_prep.tokenization.template import ChatTemplate, Span

# Noncharacters: around the names that stand for contents, and around generation blocks.
_NAME = "\ufdea{}\ufdeb"
NAMES = re.compile(_NAME.format("([0-9]+)"))
MARKS = ("\ufdec", "\ufded")
_MOST_PARTS = 500_000


class RenderedChat(NamedTuple):
    """A conversation as text.

    Attributes:
        spans: Its loss spans: [start, end) in characters, ascending, disjoint.
        num_own_specials: How many special tokens the template itself prints, where that is known.
        own_specials: Where they lie, if any other must be encoded as ordinary text.
        num_special_texts: Texts of special tokens in the row's own strings.
    """

    text: str
    spans: tuple[Span, ...]
    num_own_specials: int | None = None
    own_specials: tuple[Span, ...] | None = None
    num_special_texts: int = 0


SpansOf = Callable[[list[dict[str, Any]], str], tuple[str, Sequence[Span]] | None]


class _Printed(NamedTuple):
    """The end of a path: what is printed.

    Attributes:
        texts: All parts; empty where a text made of contents goes.
        holes: Place in ``texts`` and maker of each of those.
        spans: Loss spans as [first part, part behind).
    """

    texts: list[str]
    holes: list[tuple[int, Make]]
    spans: list[tuple[int, int]]
    num_own_specials: int | None

    def chat(self, contents: Sequence[str]) -> RenderedChat:
        texts = self.texts.copy()
        for place, make in self.holes:
            texts[place] = make(contents)
        edges = list(accumulate(map(len, texts), initial=0))
        spans = tuple([(edges[first], edges[behind]) for first, behind in self.spans])
        return RenderedChat("".join(texts), spans, self.num_own_specials)


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
        count_specials: Callable[[str], int] | None,
    ) -> None:
        """Nothing is recorded yet.

        Args:
            spans_of: The text and loss spans of messages, whose contents are names (``NAMES``), printed as a text (with
                ``MARKS`` around generation blocks); ``None`` if the spans are not proven.
            count_specials: How many special tokens a literal has; ``None`` if that tells nothing of a whole text.
        """
        self._template = template
        self._recordable = RecordableTemplate(template.source, template.variables, MARKS)
        self._spans_of = spans_of
        self._count_specials = count_specials
        self._paths: dict[tuple[str, ...], _Node] = {}
        self._num_parts = 0

    def render(self, messages: Sequence[dict[str, Any]]) -> RenderedChat | None:
        """The conversation's text and loss spans; ``None`` if it must be rendered otherwise.

        Raises:
            DataError: a sampled row is printed otherwise by Jinja.
        """
        roles, contents = [], []
        for message in messages:
            content = message.get("content")
            if len(message) != 2 or type(content) is not str:
                return None
            roles.append(message["role"])
            contents.append(content)
        printed = self._printed(tuple(roles), contents)
        if printed is None:
            return None
        chat = printed.chat(contents)
        if is_sampled(chat.text) and self._template.render(messages, {}) != chat.text:
            raise DataError(
                f"{self._template.name}: the row that begins {chat.text[:80]!r} is printed otherwise when the template "
                "is replayed; this is an error of hbp-prep, please report it"
            )
        return chat

    def _printed(self, roles: tuple[str, ...], contents: Sequence[str]) -> _Printed | None:
        try:
            node = self._paths[roles]
            while isinstance(node, _Question):
                node = node.answers[node.ask(contents)]
        except KeyError:
            return self._record(roles, contents)
        return node

    def _record(self, roles: tuple[str, ...], contents: Sequence[str]) -> _Printed | None:
        """Run the template, and keep its path."""
        if self._num_parts > _MOST_PARTS:
            self._paths.clear()
            self._num_parts = 0
        questions: Sequence[tuple[Ask, bool]] = ()
        printed = None
        try:
            recording = self._recordable.record(roles, contents)
            questions = recording.questions
            printed = self._located(roles, recording.parts)
        except Unrecordable as refusal:
            questions = refusal.questions
        self._num_parts += 1 + len(questions) + (0 if printed is None else len(printed.texts))
        branches: dict[Any, _Node] = self._paths
        answer: Any = roles
        for ask, following in questions:
            node = branches.setdefault(answer, _Question(ask))
            assert isinstance(node, _Question)
            branches, answer = node.answers, following
        branches[answer] = printed
        return printed

    def _located(self, roles: Sequence[str], parts: Sequence[str | Make]) -> _Printed | None:
        """The parts, cut where loss spans begin and end; ``None`` if those are not proven."""
        names = [_NAME.format(number) for number in range(len(roles))]
        literals = "".join(part for part in parts if isinstance(part, str))
        if any(char in literals for char in (_NAME[0], _NAME[-1])):
            return None
        named = [part if isinstance(part, str) else part(names) for part in parts]
        messages = [{"role": role, "content": name} for role, name in zip(roles, names, strict=True)]
        found = self._spans_of(messages, "".join(named))
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
            literal = part
            for mark in MARKS:
                literal = literal.replace(mark, "")
            cuts = [position, *(edge for edge in edges if position < edge < position + len(literal))]
            for start, end in zip(cuts, [*cuts[1:], position + len(literal)], strict=True):
                place_of_edge[start] = len(texts)
                texts.append(literal[start - position : end - position])
            position += len(literal)
            place_of_edge[position] = len(texts)
        if position != len(text) or not place_of_edge.keys() >= set(edges):
            return None
        count = self._count_specials
        return _Printed(
            texts=texts,
            holes=holes,
            spans=[(place_of_edge[start], place_of_edge[end]) for start, end in spans],
            num_own_specials=None if count is None else sum(map(count, _literals(parts))),
        )


def _literals(parts: Sequence[str | Make]) -> list[str]:
    """Literals as they stand in the text: without marks."""
    return ["".join(char for char in part if char not in MARKS) for part in parts if isinstance(part, str)]
