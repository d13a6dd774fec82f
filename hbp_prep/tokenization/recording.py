"""A chat template run once with its contents hidden: what it prints, as a function of the contents.

Jinja's sandbox is given, in place of every message's content, a stand-in that is no string. A question that the
template asks of a content (is it empty, does it begin with this?) is answered from the row's own text and written down;
what it makes of a content (stripped, split, joined) is another stand-in. What comes out is a recording: questions with
their answers, and printed parts, literal or made of contents. For other contents that answer all the questions alike,
the template prints the same parts, made of those: it cannot have seen a difference.

A stand-in refuses whatever it cannot write down, and filters and tests are given none that they do not need, so a
template is recorded exactly or not at all. The idea is that of concolic execution (Sen, Marinov, Agha: CUTE, 2005).
Cost: about twice that of a render.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from itertools import groupby
from operator import itemgetter
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context, Undefined

from hbp_prep.tokenization.sandbox import ROW_ERRORS, LimitedEnvironment

Make = Callable[[Sequence[str]], str]
"""A text made of a conversation's contents."""
Ask = Callable[[Sequence[str]], bool]
"""A question about a conversation's contents."""

# A stand-in printed is its number between these two noncharacters.
_OPEN, _CLOSE = "\ufdee", "\ufdef"


class Unrecordable(Exception):
    """The template does something with a content that cannot be written down, or fails.

    Attributes:
        questions: What was asked until then, with the answers.
    """

    questions: "Sequence[tuple[Ask, bool]]" = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """What a template does with the contents of a conversation of certain roles.

    Attributes:
        questions: In the order asked, with the answers that led to the parts.
        parts: What is printed: literals, and texts made of the contents; no two literals in a row.
    """

    questions: tuple[tuple[Ask, bool], ...]
    parts: tuple[str | Make, ...]


class RecordableTemplate:
    """A chat template, compiled to be recorded."""

    def __init__(self, source: str, variables: Mapping[str, Any], generation_marks: tuple[str, str]) -> None:
        """Compile; ``generation_marks`` are printed around what is inside ``{% generation %}`` blocks."""
        self._environment = _RecordingEnvironment()
        self._template = self._environment.from_string(source)
        self._environment.generation.marks = generation_marks
        self._variables = dict(variables)
        self._has_marks = any(mark in source for mark in (_OPEN, _CLOSE, *generation_marks))

    def record(self, roles: Sequence[str], contents: Sequence[str]) -> Recording:
        """Run the template on messages of ``role`` and ``content``.

        Raises:
            Unrecordable: it cannot be recorded, or fails on this conversation.
        """
        if self._has_marks:
            raise Unrecordable("the template has the marks in its own text")
        recorder = _Recorder(contents)
        messages = [
            {"role": role, "content": _Text(recorder, (itemgetter(number),))} for number, role in enumerate(roles)
        ]
        self._environment.begin(recorder)
        try:
            printed = self._template.render(self._variables, messages=messages, add_generation_prompt=False)
        except (Unrecordable, *ROW_ERRORS) as error:
            refusal = Unrecordable(str(error))
            refusal.questions = tuple(recorder.questions)
            raise refusal from error
        parts = printed.parts if isinstance(printed, _Text) else (printed,)
        return Recording(tuple(recorder.questions), _merged(parts))


class _Recorder:
    """What one run has asked and printed so far."""

    def __init__(self, contents: Sequence[str]) -> None:
        self.contents = contents
        self.questions: list[tuple[Ask, bool]] = []
        self._printed: list[_Text] = []

    def ask(self, question: Ask) -> bool:
        """The row's own answer."""
        answer = question(self.contents)
        self.questions.append((question, answer))
        return answer

    def mark(self, text: "_Text") -> str:
        """A string that stands for ``text`` in what is printed."""
        self._printed.append(text)
        return f"{_OPEN}{len(self._printed) - 1}{_CLOSE}"

    def unmarked(self, text: str) -> Iterator[str | Make]:
        """``text`` with what its marks stand for."""
        first, *others = text.split(_OPEN)
        yield first
        for other in others:
            number, _, literal = other.partition(_CLOSE)
            yield from self._printed[int(number)].parts
            yield literal


class _Hidden:
    """Refuses everything that would tell something of what it stands for."""

    __slots__ = ("_recorder",)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise Unrecordable(f"a {type(self).__name__.strip('_').lower()} is used as nothing that can be recorded")


# Jinja takes a missing attribute or a TypeError for something undefined, so these must refuse in their own way.
for _name in (
    *("bool", "call", "contains", "eq", "float", "format", "ge", "getattr", "getitem", "gt", "hash", "index", "int"),
    *("iter", "le", "len", "lt", "mod", "mul", "ne", "repr", "reversed", "rmod", "rmul", "str"),
):
    setattr(_Hidden, f"__{_name}__", _Hidden._refuse)


class _Text(_Hidden):
    """Stands for a text made of contents: literals and makers, joined."""

    __slots__ = ("parts",)

    def __init__(self, recorder: _Recorder, parts: tuple[str | Make, ...]) -> None:
        self._recorder = recorder
        self.parts = parts

    def strip(self, chars: str | None = None) -> "_Text":
        return self._made(partial(_apply, str.strip, self._make, (_plain(chars),)))

    def lstrip(self, chars: str | None = None) -> "_Text":
        return self._made(partial(_apply, str.lstrip, self._make, (_plain(chars),)))

    def rstrip(self, chars: str | None = None) -> "_Text":
        return self._made(partial(_apply, str.rstrip, self._make, (_plain(chars),)))

    def replace(self, old: str, new: str) -> "_Text":
        return self._made(partial(_apply, str.replace, self._make, (_plain(old), _plain(new))))

    def split(self, separator: str, times: int = -1) -> "_Pieces":
        if not isinstance(separator, str) or not separator:
            self._refuse()
        return _Pieces(self._recorder, partial(_apply, str.split, self._make, (separator, int(times))))

    def startswith(self, start: str) -> bool:
        return self._ask(partial(_apply, str.startswith, self._make, (_plain(start),)))

    def endswith(self, end: str) -> bool:
        return self._ask(partial(_apply, str.endswith, self._make, (_plain(end),)))

    def __contains__(self, part: str) -> bool:
        return self._ask(partial(_apply, str.__contains__, self._make, (_text(part),)))

    def __bool__(self) -> bool:
        return self._ask(partial(_is_filled, self._make))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Hidden):
            self._refuse()
        return isinstance(other, str) and self._ask(partial(_apply, str.__eq__, self._make, (other,)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = _Hidden.__hash__

    def __add__(self, other: "str | _Text") -> "_Text":
        return _Text(self._recorder, (*self.parts, *self._parts_of(other)))

    def __radd__(self, other: str) -> "_Text":
        return _Text(self._recorder, (*self._parts_of(other), *self.parts))

    def __str__(self) -> str:
        return self._recorder.mark(self)

    def _parts_of(self, other: Any) -> Iterator[str | Make]:
        if isinstance(other, _Text):
            return iter(other.parts)
        return self._recorder.unmarked(_text(other))

    @property
    def _make(self) -> Make:
        if len(self.parts) == 1 and not isinstance(self.parts[0], str):
            return self.parts[0]
        return partial(joined, _merged(self.parts))

    def _made(self, make: Make) -> "_Text":
        return _Text(self._recorder, (make,))

    def _ask(self, question: Ask) -> bool:
        return self._recorder.ask(question)


class _Pieces(_Hidden):
    """Stands for the list that a text was split into, which has a first and a last piece at least."""

    __slots__ = ("_split",)

    def __init__(self, recorder: _Recorder, split: Callable[[Sequence[str]], list[str]]) -> None:
        self._recorder = recorder
        self._split = split

    def __getitem__(self, index: int) -> _Text:
        if type(index) is not int or index not in (0, -1):
            self._refuse()
        return _Text(self._recorder, (partial(_piece, self._split, index),))


def _apply(function: Callable[..., Any], make: Make, arguments: tuple[Any, ...], contents: Sequence[str]) -> Any:
    return function(make(contents), *arguments)


def _piece(split: Callable[[Sequence[str]], list[str]], index: int, contents: Sequence[str]) -> str:
    return split(contents)[index]


def _is_filled(make: Make, contents: Sequence[str]) -> bool:
    return bool(make(contents))


def joined(parts: Sequence[str | Make], contents: Sequence[str]) -> str:
    """The parts' text for these contents."""
    return "".join([part if isinstance(part, str) else part(contents) for part in parts])


def _merged(parts: Sequence[str | Make]) -> tuple[str | Make, ...]:
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
    if not isinstance(value, str) or _OPEN in value:
        raise Unrecordable("an argument is no plain text")
    return value


class _Generator(CodeGenerator):
    """Joins with ``~`` in a way that keeps stand-ins."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 (the base class's own form)
        self.write("environment.concat((")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write("))")


class _RecordingEnvironment(LimitedEnvironment):
    """The sandbox for templates that are recorded."""

    code_generator_class = _Generator
    intercepted_binops = LimitedEnvironment.intercepted_binops | {"%"}

    def __init__(self) -> None:
        super().__init__()
        self.filters = {name: _guarded_filter(name, function) for name, function in self.filters.items()}
        self.tests = {name: _guarded_test(name, function) for name, function in self.tests.items()}
        self._recorder = _Recorder(())

    def begin(self, recorder: _Recorder) -> None:
        """A recording begins."""
        self.start()
        self._recorder = recorder

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and not isinstance(left, int):
            raise Unrecordable("a format string may have contents in it")
        return super().call_binop(context, operator, left, right)

    def concat(self, printed: Any) -> Any:
        """What a template, macro or block has printed, or the operands of ``~``: a string, or a stand-in."""
        parts: list[str | Make] = []
        for piece in printed:
            parts += piece.parts if isinstance(piece, _Text) else self._recorder.unmarked(str(piece))
        if all(isinstance(part, str) for part in parts):
            return "".join(part for part in parts if isinstance(part, str))
        return _Text(self._recorder, tuple(parts))


# Filters that only look at how many messages there are, or at single attributes of theirs.
_OF_LISTS = frozenset({"first", "last", "length", "count", "list", "reverse", "map", "selectattr", "rejectattr"})
_OF_TEXT: dict[str, Callable[..., Any]] = {
    "trim": lambda text, chars=None: text.strip(chars),
    "string": lambda text: text,
    "default": lambda text, default="", boolean=False: default if boolean and not text else text,
}
_OF_TEXT["d"] = _OF_TEXT["default"]
_OF_PIECES: dict[str, Callable[..., Any]] = {"first": lambda pieces: pieces[0], "last": lambda pieces: pieces[-1]}

# What Jinja's tests say of every string.
_OF_STRINGS = {
    **dict.fromkeys(("string", "defined", "iterable", "sequence"), True),
    **dict.fromkeys(("undefined", "none", "mapping", "number", "integer", "float", "boolean", "callable"), False),
}
_COMPARISONS = frozenset({"eq", "equalto", "==", "ne", "!=", "in"})


def _guarded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    first = int(hasattr(function, "jinja_pass_arg"))

    @wraps(function)
    def guarded(*arguments: Any, **named: Any) -> Any:
        value, *others = arguments[first:]
        if isinstance(value, _Hidden):
            known = (_OF_TEXT if isinstance(value, _Text) else _OF_PIECES).get(name)
            if known is None:
                raise Unrecordable(f"the filter {name} is applied to a content")
            return known(value, *others, **named)
        if _may_hide([*others, *named.values()]) or (name not in _OF_LISTS and _may_hide(value)):
            raise Unrecordable(f"the filter {name} may be given a content")
        return function(*arguments, **named)

    return guarded


def _guarded_test(name: str, function: Any) -> Callable[..., Any]:
    first = int(hasattr(function, "jinja_pass_arg"))

    @wraps(function)
    def guarded(*arguments: Any, **named: Any) -> Any:
        value = arguments[first]
        if isinstance(value, _Text) and name in _OF_STRINGS:
            return _OF_STRINGS[name]
        if name not in _COMPARISONS and _may_hide([*arguments[first + 1 :], *named.values()]):
            raise Unrecordable(f"the test {name} may be given a content")
        if isinstance(value, _Hidden) and name not in _COMPARISONS:
            raise Unrecordable(f"the test {name} is applied to a content")
        return function(*arguments, **named)

    return guarded


def _may_hide(value: Any) -> bool:
    """Whether there may be a stand-in in it: not in plain values and collections of such."""
    if isinstance(value, dict):
        return any(map(_may_hide, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_may_hide, value))
    return not isinstance(value, str | int | float | range | Undefined | None)
