"""Chat templates: compiled once, rendered by Jinja's sandbox. What one prints depends on the conversation alone.

Cost: 30 ns a byte with the Tulu 3 template, 200 ns with Qwen3's; see ``replay`` for how most rows are spared it.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
from jinja2 import meta

from hbp_prep.errors import ConfigError, first_line
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.suggest import did_you_mean
from hbp_prep.tokenization.marks import free_marks, take_out
from hbp_prep.tokenization.sandbox import ROW_ERRORS, LimitedEnvironment

BUILTIN_TEMPLATES = ("chatml", "tulu3")

Span = tuple[int, int]
Messages = Sequence[Mapping[str, Any]]

_OWN_VARIABLES = frozenset(
    {"messages", "add_generation_prompt", "raise_exception", "strftime_now", "loop", "namespace"}
)


class ChatTemplate:
    """One compiled chat template.

    Attributes:
        name: For messages: a built-in's name or the file that the template comes from.
        source: Its text.
        has_generation_marks: It has ``{% generation %}`` blocks.
        variables: Its own: special tokens, and what is none where a row does not set it.
        reads_tools: It reads the variable ``tools``.
        reads_reasoning: It reads messages' ``reasoning_content``.
    """

    def __init__(self, source: str, name: str, special_tokens: Mapping[str, str]) -> None:
        """Compile ``source``; ``special_tokens`` are its variables ``bos_token``, ``eos_token``, ...

        Raises:
            ConfigError: a syntax error, with template and line.
        """
        self.source = source
        self.name = name
        environment = LimitedEnvironment()
        self._environment = environment
        try:
            variables = meta.find_undeclared_variables(environment.parse(source))
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"chat template {name}, line {error.lineno}: {error.message}") from error
        except RecursionError as error:
            raise ConfigError(f"chat template {name}: its blocks are nested too deeply") from error
        self._generation = environment.generation
        self.has_generation_marks = self._generation.is_used
        self.reads_tools = "tools" in variables
        self.reads_reasoning = "reasoning_content" in source
        self.asks_for_date = "strftime_now" in variables
        # As in transformers, `tools` and `documents` are always defined, as none where a row has none.
        self.variables: dict[str, Any] = {"tools": None, "documents": None, **special_tokens}
        self._reserved = _OWN_VARIABLES | frozenset(special_tokens)

    def render(self, messages: Messages, variables: Mapping[str, Any], *, add_generation_prompt: bool = False) -> str:
        """The conversation as text.

        Raises:
            RowRejected: TEMPLATE_ERROR, the template refuses the conversation or fails on it.
        """
        for name in variables:
            if name in self._reserved:
                raise RowRejected(Reason.TEMPLATE_ERROR, f"the row sets the template's own variable {name!r}")
        context = self.variables | dict(variables)
        self._environment.start()
        try:
            return self._template.render(context, messages=messages, add_generation_prompt=add_generation_prompt)
        except ROW_ERRORS as error:
            raise RowRejected(Reason.TEMPLATE_ERROR, f"{self.name}: {first_line(error)}") from error

    def render_with_generation(self, messages: Messages, variables: Mapping[str, Any]) -> tuple[str, list[Span]]:
        """The conversation as text, and the spans [start, end) of its ``{% generation %}`` blocks, in characters.

        Raises:
            RowRejected: as for :meth:`render`; or SPANS_UNPROVEN, the blocks are nested or printed in part.
        """
        start, end = free_marks([messages, variables], 2)
        self._generation.marks = (start, end)
        try:
            marked = self.render(messages, variables)
        finally:
            self._generation.marks = ("", "")
        return self.generation_spans(marked, (start, end))

    def generation_spans(self, marked: str, marks: tuple[str, str]) -> tuple[str, list[Span]]:
        """A text printed with marks around generation blocks: without them, and the blocks' spans.

        Raises:
            RowRejected: SPANS_UNPROVEN, the blocks are nested or printed in part.
        """
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
