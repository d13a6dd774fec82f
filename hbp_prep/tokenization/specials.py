"""Text of special tokens inside a row: found, counted, and told apart from those that the template prints.

Whoever writes ``<|im_end|>`` into a message must not be able to end the turn with it. Which special tokens of a
rendered text are the template's own is known where the template is replayed (see ``replay``). Of other rows it is found
by a second render of the few concerned: an invisible mark breaks up every special text in the row's strings; that the
text is equal once the marks are out proves where each of them lies. A token that only comes about where a string meets
the template's text is found alike.

Cost: 0.2 us a message; 10 us and a second render for a row that has such text.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from hbp_prep.corpus.types import Conversation
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization.marks import free_marks, strings_in, take_out
from hbp_prep.tokenization.template import ChatTemplate, Span


class SpecialTexts:
    """The texts of one tokenizer's special tokens.

    Attributes:
        are_apart: None is in another or begins with another's end. So none can come about over one that is there, and
            a text that has as many as its template prints has no others.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        ordered = sorted(set(texts), key=lambda text: (-len(text), text))
        self._any = re.compile("|".join(map(re.escape, ordered)))
        self._overlapping = re.compile(f"(?={self._any.pattern})")
        self._beginnings = tuple(sorted({text[:2] for text in ordered}))
        self._reach = max(map(len, ordered)) - 1
        self._heads = frozenset(text[:stop] for text in ordered for stop in range(1, len(text)))
        self._tails = frozenset(text[start:] for text in ordered for start in range(1, len(text)))
        edges = sorted({(text[0], text[-1]) for text in ordered})
        self._first_chars, self._last_chars = zip(*edges, strict=True)
        self._edge_chars = tuple(sorted({*self._first_chars, *self._last_chars}))
        self._has_single = len(ordered[-1]) == 1
        self.are_apart = not any(
            (one in other and one != other) or any(other.endswith(one[:stop]) for stop in range(1, len(one)))
            for one in ordered
            for other in ordered
        )

    def check_absent(self, conversation: Conversation) -> None:
        """Refuse a row that has such text.

        Raises:
            RowRejected: BAD_CONTENT, with the place and the text.
        """
        for where, text in _strings_of(conversation):
            if found := self._any.search(text):
                raise RowRejected(Reason.BAD_CONTENT, f"{where}: the text has the special token {found.group()!r}")

    def may_touch(self, conversation: Conversation) -> bool:
        """Whether the row's strings have such text, or may become part of one where they meet the template's."""
        if conversation.template_kwargs or conversation.text is not None:
            return any(self._may_touch(text) for _, text in _strings_of(conversation))
        edge_chars = self._edge_chars
        for message in conversation.messages:
            text = message.get("content")
            if len(message) > 2 or text is None:
                if any(self._may_touch(text) for _, text in _strings_of(conversation)):
                    return True
                continue
            for char in edge_chars:
                if char in text:
                    if self._may_touch(text):
                        return True
                    break
        return False

    def count_beginnings(self, text: str) -> int:
        """How often the text has what special texts begin with: two characters."""
        return sum(map(text.count, self._beginnings))

    def find(self, text: str) -> list[Span]:
        """Where special texts are in one text, leftmost longest."""
        return [match.span() for match in self._any.finditer(text)]

    def count(self, conversation: Conversation) -> int:
        """Special texts in the row's strings."""
        return sum(len(self.find(text)) for _, text in _strings_of(conversation))

    def own_spans(self, template: ChatTemplate, conversation: Conversation, text: str) -> tuple[Span, ...] | None:
        """Where in ``text`` the template's own special tokens lie; ``None``: all that are there are its own.

        Args:
            text: The conversation as ``template`` prints it.

        Raises:
            RowRejected: SPANS_UNPROVEN, whose they are cannot be told; BAD_CONTENT, they cannot be marked.
        """
        if self._has_single:
            raise RowRejected(Reason.BAD_CONTENT, "the text has a special token of one character, or may have one")
        (mark,) = free_marks([conversation.messages, conversation.template_kwargs], 1)
        try:
            messages = [
                {key: value if key == "role" else self._marked(value, mark) for key, value in message.items()}
                for message in conversation.messages
            ]
            marked = template.render(messages, self._marked(conversation.template_kwargs, mark))
        except RecursionError as error:
            raise _unproven("its values are nested too deeply to mark special tokens' text in them") from error
        except RowRejected as error:
            raise _unproven(f"the template fails once special tokens' text is marked: {error.detail}") from error
        plain, found = take_out(marked, (mark,))
        if plain != text:
            raise _unproven("the template prints special tokens' text otherwise once it is marked")
        return self._untouched(text, [position for _, position in found])

    def _untouched(self, text: str, marks: Sequence[int]) -> tuple[Span, ...] | None:
        """Special texts without a mark strictly inside, leftmost longest; ``None`` if none has one."""
        own: list[Span] = []
        position, next_mark, is_any_touched = 0, 0, False
        while match := self._any.search(text, position):
            start, end = match.span()
            while next_mark < len(marks) and marks[next_mark] <= start:
                next_mark += 1
            if next_mark < len(marks) and marks[next_mark] < end:
                is_any_touched = True
                position = start + 1
            else:
                own.append((start, end))
                position = end
        return tuple(own) if is_any_touched else None

    def _may_touch(self, text: str) -> bool:
        for beginning in self._beginnings:
            if beginning in text and self._any.search(text):
                return True
        if not text:
            return False
        if text[0].isspace() or text[-1].isspace():
            text = text.strip()
        head, tail = text[: self._reach], text[-self._reach :]
        for first, last in zip(self._first_chars, self._last_chars, strict=True):
            if first in tail or last in head:
                return self._may_straddle(text)
        return False

    def _may_straddle(self, text: str) -> bool:
        """Whether a special token may come about at an edge of the text."""
        text = text.strip()
        tail, head = text[-self._reach :], text[: self._reach]
        return any(tail[start:] in self._heads for start in range(len(tail))) or any(
            head[:stop] in self._tails for stop in range(1, len(head) + 1)
        )

    def _marked(self, value: Any, mark: str) -> Any:
        """``value`` with every special text in its strings broken up, and marks at edges that may be part of one."""
        if isinstance(value, str):
            return self._marked_text(value, mark) if self._may_touch(value) else value
        if isinstance(value, list | tuple):
            return [self._marked(item, mark) for item in value]
        if isinstance(value, dict):
            for key in value:
                if isinstance(key, str) and self._may_touch(key):
                    raise RowRejected(Reason.BAD_CONTENT, f"the key {key!r} has the text of a special token")
            return {key: self._marked(item, mark) for key, item in value.items()}
        return value

    def _marked_text(self, text: str, mark: str) -> str:
        positions = {match.start() + 1 for match in self._overlapping.finditer(text)}
        if self._may_straddle(text):
            lead = len(text) - len(text.lstrip())
            positions |= {lead, len(text.rstrip())}
        edges = [0, *sorted(positions), len(text)]
        return mark.join(text[start:end] for start, end in pairwise(edges))


def _strings_of(conversation: Conversation) -> Iterator[tuple[str, str]]:
    """(where, text) of every string of the row but the roles, which are a fixed few."""
    for number, message in enumerate(conversation.messages):
        for key, value in message.items():
            if isinstance(value, str):
                if key != "role":
                    yield f"messages[{number}]", value
            elif value is not None:
                for text in strings_in(value):
                    yield f"messages[{number}]", text
    if conversation.text is not None:
        yield "text", conversation.text
    if conversation.template_kwargs:
        for text in strings_in(conversation.template_kwargs):
            yield "the template's variables", text


def _unproven(why: str) -> RowRejected:
    return RowRejected(Reason.SPANS_UNPROVEN, why)
