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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from operator import itemgetter
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context, Undefined

from hbp_prep.tokenization.sandbox import ROW_ERRORS, LimitedEnvironment
from hbp_prep.tokenization.stand_ins import (
    CLOSE,
    OPEN,
    Ask,
    Hidden,
    Make,
    Recorder,
    Text,
    Unrecordable,
    merged,
    parts_of,
)

HIDDEN = None
"""Stands in a shape for a text."""
Shape = tuple[str | tuple[tuple[str, Any, type], ...], ...]
"""What a template sees of a conversation besides its texts: for every message its role, if there is only a content
besides, else all keys with their values, ``HIDDEN`` for texts, and the values' types."""


def messages_of(shape: Shape, texts: Sequence[Any]) -> list[dict[str, Any]]:
    """Messages of a shape, with these texts in the order of messages and keys."""
    following = iter(texts)
    return [
        {"role": message, "content": next(following)}
        if isinstance(message, str)
        else {key: next(following) if value is HIDDEN else value for key, value, _ in message}
        for message in shape
    ]


@dataclass(frozen=True, slots=True)
class Recording:
    """What a template does with the texts of a conversation of a certain shape.

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
        self._has_marks = any(mark in source for mark in (OPEN, CLOSE, *generation_marks))

    def record(self, shape: Shape, texts: Sequence[str]) -> Recording:
        """Run the template on messages of this shape.

        Raises:
            Unrecordable: it cannot be recorded, or fails on this conversation.
        """
        if self._has_marks:
            raise Unrecordable("the template has the marks in its own text")
        recorder = Recorder(texts)
        messages = messages_of(shape, [Text(recorder, (itemgetter(number),)) for number in range(len(texts))])
        self._environment.begin(recorder)
        try:
            printed = self._template.render(self._variables, messages=messages, add_generation_prompt=False)
        except (Unrecordable, *ROW_ERRORS) as error:
            refusal = Unrecordable(str(error))
            refusal.questions = tuple(recorder.questions)
            raise refusal from error
        parts = parts_of(printed) if isinstance(printed, Text) else (printed,)
        return Recording(tuple(recorder.questions), merged(parts))


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
        self._recorder = Recorder(())

    def begin(self, recorder: Recorder) -> None:
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
            parts += parts_of(piece) if isinstance(piece, Text) else self._recorder.unmarked(str(piece))
        if all(isinstance(part, str) for part in parts):
            return "".join(part for part in parts if isinstance(part, str))
        return Text(self._recorder, tuple(parts))


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
        if isinstance(value, Hidden):
            known = (_OF_TEXT if isinstance(value, Text) else _OF_PIECES).get(name)
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
        if isinstance(value, Text) and name in _OF_STRINGS:
            return _OF_STRINGS[name]
        if name not in _COMPARISONS and _may_hide([*arguments[first + 1 :], *named.values()]):
            raise Unrecordable(f"the test {name} may be given a content")
        if isinstance(value, Hidden) and name not in _COMPARISONS:
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
