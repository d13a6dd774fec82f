"""Chat templates: sandboxed Jinja with the helpers that Hugging Face templates rely on, and ``{% generation %}`` marks.

Jinja2 takes about 30 ns a byte with the Tulu 3 template, 200 ns with Qwen3's; minijinja a third (see
``fast_template``). What a template prints depends on the
conversation alone. ``strftime_now`` is therefore undefined: templates that test for it fall back on their fixed date,
and one that demands today's date is refused, since its data would differ from day to day.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hbp_prep.errors import ConfigError
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.suggest import did_you_mean
from hbp_prep.tokenization.fast_template import FastTemplate
from hbp_prep.tokenization.marks import free_marks, take_out

BUILTIN_TEMPLATES = ("chatml", "tulu3")

_MAX_RANGE_STEPS = 100_000
_MAX_PRODUCT = 1_000_000

Span = tuple[int, int]
Messages = Sequence[Mapping[str, Any]]

# What a template's own code may raise on a row that it does not expect.
_ROW_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_OWN_VARIABLES = frozenset(
    {"messages", "add_generation_prompt", "raise_exception", "strftime_now", "loop", "namespace"}
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

    def _wrap(self, caller: Any) -> str:
        start, end = self.marks
        return f"{start}{caller()}{end}"


class _LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with limits on what one render may count through and multiply."""

    intercepted_binops = frozenset({"*", "**"})

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


class ChatTemplate:
    """One compiled chat template.

    Attributes:
        name: For messages: a built-in's name or the file that the template comes from.
        source: Its text.
        has_generation_marks: It has ``{% generation %}`` blocks.
        reads_tools: It reads the variable ``tools``.
        reads_reasoning: It reads messages' ``reasoning_content``.
    """

    def __init__(self, source: str, name: str, special_tokens: Mapping[str, str], *, fast: bool = True) -> None:
        """Compile ``source``; ``special_tokens`` are its variables ``bos_token``, ``eos_token``, ...

        Args:
            fast: Render plain rows with minijinja if it is proven to print this template as Jinja2 does.

        Raises:
            ConfigError: a syntax error, with template and line.
        """
        self.source = source
        self.name = name
        environment = _LimitedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationMarks, loopcontrols], autoescape=False
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["range"] = environment.limited_range
        self._environment = environment
        try:
            variables = meta.find_undeclared_variables(environment.parse(source))
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"chat template {name}, line {error.lineno}: {error.message}") from error
        except RecursionError as error:
            raise ConfigError(f"chat template {name}: its blocks are nested too deeply") from error
        extension = environment.extensions[GenerationMarks.identifier]
        assert isinstance(extension, GenerationMarks)
        self._generation = extension
        self.has_generation_marks = extension.is_used
        self.reads_tools = "tools" in variables
        self.reads_reasoning = "reasoning_content" in source
        self.asks_for_date = "strftime_now" in variables
        # As in transformers, `tools` and `documents` are always defined, as none where a row has none.
        self._variables: dict[str, Any] = {"tools": None, "documents": None, **special_tokens}
        self._reserved = _OWN_VARIABLES | frozenset(special_tokens)
        self._fast: FastTemplate | None = None
        if fast and not self.has_generation_marks:
            self._fast = FastTemplate.proven(source, self._variables, self._render_by_jinja)

    def render(self, messages: Messages, variables: Mapping[str, Any], *, add_generation_prompt: bool = False) -> str:
        """The conversation as text.

        Raises:
            RowRejected: TEMPLATE_ERROR, the template refuses the conversation or fails on it.
        """
        for name in variables:
            if name in self._reserved:
                raise RowRejected(Reason.TEMPLATE_ERROR, f"the row sets the template's own variable {name!r}")
        if self._fast is not None and not variables:
            text = self._fast.render(messages, add_generation_prompt=add_generation_prompt)
            if text is not None:
                return text
        return self._render_by_jinja(messages, variables, add_generation_prompt=add_generation_prompt)

    def _render_by_jinja(
        self, messages: Messages, variables: Mapping[str, Any], *, add_generation_prompt: bool = False
    ) -> str:
        context = self._variables | dict(variables)
        self._environment.start()
        try:
            return self._template.render(context, messages=messages, add_generation_prompt=add_generation_prompt)
        except _ROW_ERRORS as error:
            raise RowRejected(Reason.TEMPLATE_ERROR, f"{self.name}: {_first_line(error)}") from error

    def render_with_generation(self, messages: Messages, variables: Mapping[str, Any]) -> tuple[str, list[Span]]:
        """The conversation as text, and the spans [start, end) of its ``{% generation %}`` blocks, in characters.

        Raises:
            RowRejected: as for :meth:`render`; or SPANS_UNPROVEN, the blocks are nested or printed in part.
        """
        marks = free_marks([messages, variables], 2)
        self._generation.marks = (marks[0], marks[1])
        try:
            marked = self.render(messages, variables)
        finally:
            self._generation.marks = ("", "")
        text, found = take_out(marked, marks)
        opening, closing = found[0::2], found[1::2]
        kinds = {mark for mark, _ in opening}, {mark for mark, _ in closing}
        if len(opening) != len(closing) or (found and kinds != ({marks[0]}, {marks[1]})):
            raise RowRejected(Reason.SPANS_UNPROVEN, f"{self.name}: generation blocks are nested or printed in part")
        return text, [(start, end) for (_, start), (_, end) in zip(opening, closing, strict=True) if start < end]


def builtin_template(name: str) -> str:
    """The text of a built-in template.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in BUILTIN_TEMPLATES:
        near = did_you_mean(name, BUILTIN_TEMPLATES)
        raise ConfigError(f"chat template {name!r} is neither a .jinja file nor a built-in template{near}")
    return files("hbp_prep.tokenization").joinpath("templates", f"{name}.jinja").read_text("utf-8")


def _to_json(value: Any, **options: Any) -> str:
    """The filter ``tojson`` of transformers: plain JSON, without HTML escapes."""
    options.setdefault("ensure_ascii", False)
    return json.dumps(value, **options)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
