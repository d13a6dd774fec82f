"""Loss spans: which characters of a rendered conversation the model is trained to write.

A span reaches from behind an assistant turn's header to the end of its stop text. It is taken from the one full render
(never from renders of prefixes, which templates refuse or treat otherwise), and only when it is proven:

- Plain conversations are replayed (see ``replay``): their spans are found in the text that the template prints of
  contents that are nothing but names, so contents cannot be taken for anything else.
- Others, or where that cannot be: a template with ``{% generation %}`` marks says itself where its spans are.
- Otherwise, plain path: every turn reads ``header, prelude, content, stop`` without a gap, all messages appear in
  order, and there are as many headers as turns. One render, a few string searches.
- Otherwise, marked path: render again with invisible marks around the contents. That the text is equal once the marks
  are out proves where each content lies; header and stop must then be found in the template's own text around it.
- Otherwise the row is rejected: right or rejected, never wrong.
"""

from collections.abc import Sequence
from typing import Any

from hbp_prep.corpus.types import Conversation
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization.locate import Region, locate_turns, turns_of, unproven
from hbp_prep.tokenization.marks import free_marks, strings_in, take_out
from hbp_prep.tokenization.replay import MARKS, NAMES, RenderedChat, Replay
from hbp_prep.tokenization.specials import SpecialTexts
from hbp_prep.tokenization.template import ChatTemplate, Span
from hbp_prep.tokenization.turns import TurnShape, learn_marked_stop, learn_turn_shape

LOSS_ON = ("all", "last")
_PLAIN_KEYS = frozenset({"role", "content", "weight", "train"})


class Renderer:
    """Renders conversations with one template and finds their loss spans."""

    def __init__(
        self,
        template: ChatTemplate,
        stop_texts: Sequence[str],
        *,
        loss_on: str = "all",
        specials: SpecialTexts | None = None,
    ) -> None:
        """Learn the template's shape.

        Args:
            stop_texts: What may end a turn: the eos token first, then the other special tokens.
            loss_on: ``all`` assistant turns, or the ``last`` one only.
            specials: See :class:`Replay`.

        Raises:
            ConfigError: spans cannot be derived from this template.
        """
        self._template = template
        self._loss_on = loss_on
        self._shape: TurnShape | None = None
        if template.has_generation_marks:
            self._stop = learn_marked_stop(template, stop_texts)
        else:
            self._shape = learn_turn_shape(template, stop_texts)
            self._stop = self._shape.stop
        self._replay = Replay(template, self._spans_of_printed, specials)

    def render(self, conversation: Conversation) -> RenderedChat:
        """The conversation's text and loss spans.

        Raises:
            RowRejected: BAD_CONTENT, TEMPLATE_ERROR, SPANS_UNPROVEN, or NO_LOSS_TOKENS (no turn to train on).
        """
        variables = conversation.template_kwargs
        if not variables and (chat := self._replay.render(conversation.messages)) is not None:
            return chat
        if variables.get("tools") and not self._template.reads_tools:
            detail = f"{self._template.name} does not print the tools that the row has; use a template that does"
            raise RowRejected(Reason.TEMPLATE_ERROR, detail)
        if not self._template.reads_reasoning and any(m.get("reasoning_content") for m in conversation.messages):
            why = "it would drop the row's reasoning_content in silence"
            raise RowRejected(Reason.TEMPLATE_ERROR, f"{self._template.name}: {why}")
        turns = [message for message in conversation.messages if message["role"] == "assistant"]
        if not turns:
            raise RowRejected(Reason.NO_LOSS_TOKENS, "no assistant message")
        _check_contents(conversation.messages)
        if self._shape is None:
            text, spans = self._template.render_with_generation(conversation.messages, variables)
            spans = [(start, self._over_stop(text, end)) for start, end in spans]
        else:
            text = self._template.render(conversation.messages, variables)
            spans = _derive(self._template, self._shape, conversation, text)
        return RenderedChat(text, tuple(self._chosen(turns, spans)))

    def own_specials(self, conversation: Conversation) -> tuple[Span, ...]:
        """See :meth:`Replay.own_specials`."""
        return self._replay.own_specials(conversation.messages)

    def _spans_of_printed(self, messages: list[dict[str, Any]], printed: str) -> tuple[str, Sequence[Span]] | None:
        """Text and spans of plain messages, from what the template has printed; ``None`` if they are not proven."""
        turns = [message for message in messages if message["role"] == "assistant"]
        if not turns:
            return None
        try:
            if self._shape is None:
                text, blocks = self._template.generation_spans(printed, MARKS)
                return text, self._chosen(turns, [(start, self._over_stop(text, end)) for start, end in blocks])
            return printed, self._chosen(turns, _named_path(self._shape, messages, printed))
        except RowRejected:
            return None

    def _over_stop(self, text: str, end: int) -> int:
        return end + len(self._stop) if text.startswith(self._stop, end) else end

    def _chosen(self, turns: Sequence[dict[str, Any]], spans: Sequence[Span]) -> Sequence[Span]:
        """The spans of the turns that are trained: all or the last, without those that the row itself switches off."""
        wanted = [message.get("train", True) and message.get("weight", 1) != 0 for message in turns]
        if self._loss_on == "last":
            wanted[:-1] = [False] * (len(turns) - 1)
        if all(wanted):
            return spans
        if len(spans) != len(turns):
            raise unproven(
                f"{len(spans)} generation blocks for {len(turns)} turns; which of them are not trained is unknown"
            )
        if not any(wanted):
            raise RowRejected(Reason.NO_LOSS_TOKENS, "every assistant message is switched off (train or weight)")
        return [span for span, is_wanted in zip(spans, wanted, strict=True) if is_wanted]


def _check_contents(messages: Sequence[dict[str, Any]]) -> None:
    """Contents are strings; templates would print a null or a list as Python shows it."""
    for number, message in enumerate(messages):
        content = message.get("content")
        if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
            raise RowRejected(Reason.BAD_CONTENT, f"messages[{number}]: the content is not a string")


def _derive(template: ChatTemplate, shape: TurnShape, conversation: Conversation, text: str) -> list[Span]:
    extras = [message for message in conversation.messages if not message.keys() <= _PLAIN_KEYS]
    if extras or conversation.template_kwargs:
        _check_extras(shape, conversation)
    spans = _plain_path(shape, conversation.messages, text)
    return _marked_path(template, shape, conversation, text) if spans is None else spans


def _check_extras(shape: TurnShape, conversation: Conversation) -> None:
    """Text outside of contents (tools, calls, reasoning) cannot be told from the template's own: it must be clean."""
    values = [value for m in conversation.messages for key, value in m.items() if key not in ("role", "content")]
    for text in strings_in([values, conversation.template_kwargs]):
        for part in (shape.header, shape.stop):
            if part.strip() in text:
                raise unproven(f"text outside of the contents (tools, tool calls, reasoning) has {part.strip()!r}")


def _plain_path(shape: TurnShape, messages: Sequence[dict[str, Any]], text: str) -> list[Span] | None:
    """The spans if all is as simple as can be, else ``None``."""
    spans: list[Span] = []
    cursor = 0
    for message in messages:
        content = message.get("content")
        if content is None or message.get("tool_calls"):
            return None
        core = content.strip()
        if message["role"] != "assistant":
            position = text.find(core, cursor)
            if position < 0:
                return None
            cursor = position + len(core)
            continue
        header = text.find(shape.header, cursor)
        if header < 0:
            return None
        start = header + len(shape.header)
        end = _end_of_turn(shape, text, start, (content, core))
        if end is None:
            return None
        spans.append((start, end))
        cursor = end
    return spans if text.count(shape.header) == len(spans) else None


def _end_of_turn(shape: TurnShape, text: str, start: int, contents: Sequence[str]) -> int | None:
    """Where the stop ends if prelude, content (as it is or stripped) and stop follow each other from ``start``."""
    for prelude in shape.preludes:
        if text.startswith(prelude, start):
            for content in contents:
                end = start + len(prelude) + len(content)
                if text.startswith(content, start + len(prelude)) and text.startswith(shape.stop, end):
                    return end + len(shape.stop)
    return None


def _named_path(shape: TurnShape, messages: Sequence[dict[str, Any]], text: str) -> list[Span]:
    """The spans in a text that was printed with names in place of contents; a content may be printed in pieces."""
    regions: list[Region] = []
    numbers: list[int] = []
    shown: set[int] = set()
    for match in NAMES.finditer(text):
        number = int(match[1])
        start = match.start()
        if not match[2]:
            shown.add(number)
        if numbers and numbers[-1] == number:
            numbers.pop()
            start = regions.pop().first
        numbers.append(number)
        regions.append(Region(messages[number]["role"] == "assistant", start, match.end()))
    if sorted(numbers) != list(range(len(messages))) or len(shown) < len(messages):
        raise unproven("a message does not show in the rendered text in one place")
    return locate_turns(shape, text, regions, *turns_of([messages[number] for number in numbers]))


def _marked_path(template: ChatTemplate, shape: TurnShape, conversation: Conversation, text: str) -> list[Span]:
    marks = free_marks([conversation.messages, conversation.template_kwargs], 4)
    found = _found_marks(template, conversation, text, marks)
    regions = _regions(found, marks)
    turns, answers_tool = turns_of(conversation.messages)
    others = [m for m in conversation.messages if m["role"] != "assistant" and (m.get("content") or "").strip()]
    num_turns = sum(region.is_turn for region in regions)
    if num_turns != len(turns) or len(regions) - num_turns < len(others):
        raise unproven("a message, or a tool call, does not show in the rendered text exactly once")
    return locate_turns(shape, text, regions, turns, answers_tool)


def _found_marks(
    template: ChatTemplate, conversation: Conversation, text: str, marks: tuple[str, ...]
) -> list[tuple[str, int]]:
    """The marks and their positions in ``text``, from a render that is equal to it once they are out.

    White space stays outside of the marks, so that trimming acts alike; if not, it goes inside (Qwen3 strips line ends
    between a think block and an answer that is empty).
    """
    for is_core in (True, False):
        marked_messages = [_marked(message, marks, is_core=is_core) for message in conversation.messages]
        try:
            marked = template.render(marked_messages, conversation.template_kwargs)
        except RowRejected as error:
            raise unproven(f"the template fails once contents are marked: {error.detail}") from error
        plain, found = take_out(marked, marks)
        if plain == text:
            return found
    raise unproven("the template prints a content otherwise once it is marked")


def _marked(message: dict[str, Any], marks: Sequence[str], *, is_core: bool) -> dict[str, Any]:
    """The message with marks around its content, or around what is left of it without white space at both ends.

    A turn with tool calls has its end mark behind the last call's name; a turn without content, its start mark before
    the first call's.
    """
    turn_start, turn_end, other_start, other_end = marks
    content = message.get("content") or ""
    core = content.strip()
    lead = content[: len(content) - len(content.lstrip())] if is_core else ""
    trail = content[len(lead) + len(core) :] if is_core else ""
    inside = core if is_core else content
    if message["role"] != "assistant":
        return message if not core else {**message, "content": f"{lead}{other_start}{inside}{other_end}{trail}"}
    calls = message.get("tool_calls")
    if not calls:
        return {**message, "content": f"{lead}{turn_start}{inside}{turn_end}{trail}"}
    calls = list(calls)
    calls[-1] = _with_name(calls[-1], "", turn_end)
    if core:
        return {**message, "content": f"{lead}{turn_start}{inside}{trail}", "tool_calls": calls}
    calls[0] = _with_name(calls[0], turn_start, "")
    return {**message, "tool_calls": calls}


def _with_name(call: Any, before: str, behind: str) -> dict[str, Any]:
    """The tool call, in either form, with marks around its function's name."""
    if isinstance(call, dict) and call.get("function"):
        return {**call, "function": _with_name(call["function"], before, behind)}
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise RowRejected(Reason.BAD_CONTENT, "a tool call does not name a function")
    return {**call, "name": f"{before}{call['name']}{behind}"}


def _regions(found: Sequence[tuple[str, int]], marks: Sequence[str]) -> list[Region]:
    """Pairs of marks as regions, in the text's order. A turn's start mark may be missing (a stripped think block)."""
    turn_start, turn_end, other_start, other_end = marks
    regions: list[Region] = []
    opened: tuple[str, int] | None = None
    for mark, position in found:
        if mark in (turn_start, other_start) and opened is None:
            opened = (mark, position)
        elif mark == other_end and opened is not None and opened[0] == other_start:
            regions.append(Region(False, opened[1], position))
            opened = None
        elif mark == turn_end and (opened is None or opened[0] == turn_start):
            regions.append(Region(True, None if opened is None else opened[1], position))
            opened = None
        else:
            raise unproven("messages overlap in the rendered text")
    if opened is not None:
        raise unproven("the end of a message does not show in the rendered text")
    return regions
