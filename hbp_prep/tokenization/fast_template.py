"""Chat templates rendered by ``minijinja``, where it is proven to print what Jinja2 prints.

It is two to six times faster. It is taken for a template only after it has printed the same on probe conversations, and
only for plain rows: every message has a string as role and as content, and nothing else. One row in 256, chosen by its
content, is rendered by both, and a difference stops the run. Where it fails, Jinja2 decides what becomes of the row.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import minijinja

from hbp_prep.errors import DataError
from hbp_prep.reasons import RowRejected

Render = Callable[..., str]

_FUEL = 5_000_000
_SAMPLED_ONE_IN = 256
_SAMPLED_CHARS = 4096
# White space to Python, not to Rust: a text that has it left may have been trimmed otherwise. And what Rust makes of
# lone surrogates.
_DISPUTED = ("\x1c", "\x1d", "\x1e", "\x1f", "\ufffd")


class FastTemplate:
    """One template, compiled by minijinja."""

    def __init__(self, source: str, variables: Mapping[str, Any], reference: Render) -> None:
        """Compile.

        Args:
            variables: The template's own variables.
            reference: Renders (messages, variables, add_generation_prompt=...) by Jinja2.

        Raises:
            minijinja.TemplateError: it has something that minijinja does not know.
        """
        self._environment = minijinja.Environment(
            templates={"chat": source}, trim_blocks=True, lstrip_blocks=True, pycompat=True, fuel=_FUEL
        )
        self._environment.add_global("raise_exception", _refuse)
        self._environment.auto_escape_callback = _never_escape
        self._variables = dict(variables)
        self._reference = reference

    @classmethod
    def proven(cls, source: str, variables: Mapping[str, Any], reference: Render) -> "FastTemplate | None":
        """The template if it prints all probes as ``reference`` does, else ``None``."""
        try:
            made = cls(source, variables, reference)
        except minijinja.TemplateError:
            return None
        for messages in _probes():
            for opens in (False, True):
                try:
                    expected = reference(messages, {}, add_generation_prompt=opens)
                except RowRejected:
                    expected = None
                if made._print(messages, add_generation_prompt=opens) != expected:
                    return None
        return made

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool) -> str | None:
        """The text; ``None`` if Jinja2 must decide.

        Raises:
            DataError: a sampled row is printed otherwise by Jinja2.
        """
        for message in messages:
            if len(message) != 2 or not isinstance(message.get("content"), str):
                return None
        text = self._print(messages, add_generation_prompt=add_generation_prompt)
        if text is None or any(char in text for char in _DISPUTED):
            return None
        digest = zlib.crc32(text[:_SAMPLED_CHARS].encode("utf-8", "replace"))
        if digest % _SAMPLED_ONE_IN == 0:
            expected = self._reference(messages, {}, add_generation_prompt=add_generation_prompt)
            if expected != text:
                raise DataError(
                    f"minijinja and Jinja2 print the row that begins {text[:80]!r} differently; run again with "
                    "--tokenizer-backend tokenizers"
                )
        return text

    def _print(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool) -> str | None:
        try:
            return self._environment.render_template(
                "chat", messages=messages, add_generation_prompt=add_generation_prompt, **self._variables
            )
        except (minijinja.TemplateError, _Refused, UnicodeError):
            return None


class _Refused(Exception):
    """The template's own ``raise_exception``."""


def _refuse(message: str) -> None:
    raise _Refused(message)


def _never_escape(_name: str) -> bool:
    return False


def _probes() -> list[list[dict[str, str]]]:
    """Conversations of every shape, with contents that templates look into."""
    contents = [
        "",
        "a",
        "  white space \n",
        "\n\n\u2003\u00a0x\u3000\u2028",
        "<b>&amp; 'quoted' \"text\" \\n {{ x }} {% y %}",
        "é漢🙂\u0301\x00",
        "<think>\nwhy\n</think>\n\nanswer",
        "why</think>answer",
        "<tool_response>\nx\n</tool_response>",
    ]
    shapes = [
        ("user",),
        ("user", "assistant"),
        ("system", "user", "assistant"),
        ("assistant", "user"),
        ("user", "assistant", "user", "assistant"),
        ("system", "user", "assistant", "tool", "assistant", "user", "assistant"),
        ("user", "user"),
        ("system",),
    ]
    return [
        [
            {"role": role, "content": contents[(number + shift * (1 + number % 3)) % len(contents)]}
            for number, role in enumerate(shape)
        ]
        for shape in shapes
        for shift in range(len(contents))
    ]
