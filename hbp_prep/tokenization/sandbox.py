"""Jinja's sandbox as chat templates know it, with limits on what one render may count through and multiply.

It has the helpers that Hugging Face templates rely on, and ``{% generation %}`` marks.

``strftime_now`` is left undefined: templates that test for it fall back on their fixed date, and one that demands
today's date is refused, since its data would differ from day to day.
"""

import json
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MAX_RANGE_STEPS = 100_000
_MAX_PRODUCT = 1_000_000

# What a template's own code may raise on a row that it does not expect.
ROW_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class GenerationMarks(Extension):
    """The block ``{% generation %} ... {% endgeneration %}``: what is inside is a target of the loss."""

    tags = {"generation"}  # noqa: RUF012 (the base class's own form)

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.marks = ("", "")
        self.is_used = False

    def parse(self, parser: Parser) -> nodes.Node:
        self.is_used = True
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_wrap"), [], [], body).set_lineno(line)

    def _wrap(self, caller: Any) -> Any:
        start, end = self.marks
        return start + caller() + end


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with limits on what one render may count through and multiply."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationMarks, loopcontrols], autoescape=False
        )
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["range"] = self.limited_range
        # What is drawn at random would differ from run to run.
        del self.filters["random"], self.globals["lipsum"]
        self._num_steps_left = 0

    @property
    def generation(self) -> GenerationMarks:
        """The extension that marks what is inside ``{% generation %}`` blocks."""
        extension = self.extensions[GenerationMarks.identifier]
        assert isinstance(extension, GenerationMarks)
        return extension

    def start(self) -> None:
        """A render begins."""
        self._num_steps_left = _MAX_RANGE_STEPS

    def limited_range(self, *bounds: int) -> range:
        """``range``, all uses of one render together limited."""
        steps = range(*bounds)
        self._num_steps_left -= len(steps)
        if self._num_steps_left < 0:
            raise jinja2.TemplateRuntimeError(f"it counts through more than {_MAX_RANGE_STEPS:,} numbers")
        return steps

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Products; powers are not needed by any template."""
        if operator == "**":
            raise jinja2.TemplateRuntimeError("powers are not allowed")
        for value, times in ((left, right), (right, left)):
            if isinstance(value, str | list | tuple) and len(value) * times > _MAX_PRODUCT:
                raise jinja2.TemplateRuntimeError(f"a product is longer than {_MAX_PRODUCT:,}")
        return super().call_binop(context, operator, left, right)


def _to_json(value: Any, **options: Any) -> str:
    """The filter ``tojson`` of transformers: plain JSON, without HTML escapes."""
    options.setdefault("ensure_ascii", False)
    return json.dumps(value, **options)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
