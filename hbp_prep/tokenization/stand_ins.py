"""Stand-ins for the contents of messages: what ``recording`` gives to a template.

They are no strings, so that nothing can look into them without their knowledge, and refuse whatever they cannot write
down. A text is kept as its parts: literals, and makers of texts from a conversation's contents.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NoReturn

Make = Callable[[Sequence[str]], str]
"""A text made of a conversation's contents."""
Ask = Callable[[Sequence[str]], bool]
"""A question about a conversation's contents."""

# A stand-in printed is its number between these two noncharacters.
OPEN, CLOSE = "\ufdee", "\ufdef"


class Unrecordable(Exception):
    """The template does something with a content that cannot be written down, or fails.

    Attributes:
        questions: What was asked until then, with the answers.
    """

    questions: "Sequence[tuple[Ask, bool]]" = ()


class Recorder:
    """What one run has asked and printed so far."""

    def __init__(self, contents: Sequence[str]) -> None:
        self.contents = contents
        self.questions: list[tuple[Ask, bool]] = []
        self._printed: list[Text] = []

    def ask(self, question: Ask) -> bool:
        """The row's own answer."""
        answer = question(self.contents)
        self.questions.append((question, answer))
        return answer

    def mark(self, text: "Text") -> str:
        """A string that stands for ``text`` in what is printed."""
        self._printed.append(text)
        return f"{OPEN}{len(self._printed) - 1}{CLOSE}"

    def unmarked(self, text: str) -> Iterator[str | Make]:
        """``text`` with what its marks stand for."""
        first, *others = text.split(OPEN)
        yield first
        for other in others:
            number, _, literal = other.partition(CLOSE)
            yield from self._printed[int(number)]._parts
            yield literal


class Hidden:
    """Refuses everything that would tell something of what it stands for."""

    __slots__ = ("_recorder",)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise Unrecordable(f"a {type(self).__name__.strip('_').lower()} is used as nothing that can be recorded")


# Jinja takes a missing attribute or a TypeError for something undefined, so these must refuse in their own way.
for _name in (
    *("bool", "call", "contains", "eq", "float", "format", "ge", "getattr", "getitem", "gt", "hash", "index", "int"),
    *("iter", "le", "len", "lt", "mod", "mul", "ne", "repr", "reversed", "rmod", "rmul", "str"),
):
    setattr(Hidden, f"__{_name}__", Hidden._refuse)


class Text(Hidden):
    """Stands for a text made of contents: literals and makers, joined."""

    __slots__ = ("_parts",)

    def __init__(self, recorder: Recorder, parts: tuple[str | Make, ...]) -> None:
        self._recorder = recorder
        self._parts = parts

    def strip(self, chars: str | None = None) -> "Text":
        return self._made(partial(_apply, str.strip, self._make, (_plain(chars),)))

    def lstrip(self, chars: str | None = None) -> "Text":
        return self._made(partial(_apply, str.lstrip, self._make, (_plain(chars),)))

    def rstrip(self, chars: str | None = None) -> "Text":
        return self._made(partial(_apply, str.rstrip, self._make, (_plain(chars),)))

    def replace(self, old: str, new: str) -> "Text":
        return self._made(partial(_apply, str.replace, self._make, (_plain(old), _plain(new))))

    def split(self, separator: str, times: int = -1) -> "Pieces":
        if not isinstance(separator, str) or not separator:
            self._refuse()
        return Pieces(self._recorder, partial(_apply, str.split, self._make, (separator, int(times))))

    def startswith(self, start: str) -> bool:
        return self._ask(partial(_apply, str.startswith, self._make, (_plain(start),)))

    def endswith(self, end: str) -> bool:
        return self._ask(partial(_apply, str.endswith, self._make, (_plain(end),)))

    def __contains__(self, part: str) -> bool:
        return self._ask(partial(_apply, str.__contains__, self._make, (_text(part),)))

    def __bool__(self) -> bool:
        return self._ask(partial(_is_filled, self._make))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Hidden):
            self._refuse()
        return isinstance(other, str) and self._ask(partial(_apply, str.__eq__, self._make, (other,)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = Hidden.__hash__

    def __add__(self, other: "str | Text") -> "Text":
        return Text(self._recorder, (*self._parts, *self._parts_of(other)))

    def __radd__(self, other: str) -> "Text":
        return Text(self._recorder, (*self._parts_of(other), *self._parts))

    def __str__(self) -> str:
        return self._recorder.mark(self)

    def _parts_of(self, other: Any) -> Iterator[str | Make]:
        if isinstance(other, Text):
            return iter(other._parts)
        return self._recorder.unmarked(_text(other))

    @property
    def _make(self) -> Make:
        if len(self._parts) == 1 and not isinstance(self._parts[0], str):
            return self._parts[0]
        return partial(joined, merged(self._parts))

    def _made(self, make: Make) -> "Text":
        return Text(self._recorder, (make,))

    def _ask(self, question: Ask) -> bool:
        return self._recorder.ask(question)


class Pieces(Hidden):
    """Stands for the list that a text was split into, which has a first and a last piece at least."""

    __slots__ = ("_split",)

    def __init__(self, recorder: Recorder, split: Callable[[Sequence[str]], list[str]]) -> None:
        self._recorder = recorder
        self._split = split

    def __getitem__(self, index: int) -> Text:
        if type(index) is not int or index not in (0, -1):
            self._refuse()
        return Text(self._recorder, (partial(_piece, self._split, index),))


def _apply(function: Callable[..., Any], make: Make, arguments: tuple[Any, ...], contents: Sequence[str]) -> Any:
    return function(make(contents), *arguments)


def _piece(split: Callable[[Sequence[str]], list[str]], index: int, contents: Sequence[str]) -> str:
    return split(contents)[index]


def _is_filled(make: Make, contents: Sequence[str]) -> bool:
    return bool(make(contents))


def parts_of(text: Text) -> tuple[str | Make, ...]:
    """What it is made of. (No attribute, for templates would see it.)"""
    return text._parts


def joined(parts: Sequence[str | Make], contents: Sequence[str]) -> str:
    """The parts' text for these contents."""
    return "".join([part if isinstance(part, str) else part(contents) for part in parts])


def merged(parts: Sequence[str | Make]) -> tuple[str | Make, ...]:
    """Neighbouring literals as one, empty ones left out."""
    merged: list[str | Make] = []
    for is_literal, run in groupby(parts, lambda part: isinstance(part, str)):
        if not is_literal:
            merged += run
        elif literal := "".join(part for part in run if isinstance(part, str)):
            merged.append(literal)
    return tuple(merged)


def _plain(value: Any) -> Any:
    """An argument that stands for nothing hidden: a string or none."""
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or OPEN in value:
        raise Unrecordable("an argument is no plain text")
    return value
