"""What a template does around an assistant turn, learnt once from a probe conversation: header, stop text, prelude."""

from collections.abc import Sequence
from dataclasses import dataclass

from hbp_prep.errors import ConfigError
from hbp_prep.reasons import RowRejected
from hbp_prep.tokenization.marks import take_out
from hbp_prep.tokenization.template import ChatTemplate, Span

_START, _END = "\ufdd0", "\ufdd1"
_QUESTIONS = ("What is the first thing?", "And what is the second?")
_ANSWERS = ("The first thing is this.", "The second is that.")
_LAST_TURN = ("assistant", _ANSWERS[1])


@dataclass(frozen=True, kw_only=True)
class TurnShape:
    """How a template prints assistant turns: ``header, prelude, content, stop``.

    Attributes:
        header: What opens a turn; the text that the template appends as generation prompt.
        stop: What the model must write to end a turn: the eos token's text, or another special token's.
        preludes: What the template itself puts between header and content (``""``, or Qwen3's empty think block),
            longest first. The model writes it, so it is part of the turn's span.
        tool_header: What stands between a tool's output and the answer to it where the template opens such answers
            without ``header`` (DeepSeek-V3); else ``None``.
    """

    header: str
    stop: str
    preludes: tuple[str, ...]
    tool_header: str | None = None


def learn_turn_shape(template: ChatTemplate, stop_texts: Sequence[str]) -> TurnShape:
    """Learn the shape of a template without ``{% generation %}`` marks.

    Args:
        stop_texts: What may end a turn, the most likely first: the eos token, then the other special tokens.

    Raises:
        ConfigError: the template has no generation prompt, does not end assistant turns with one of ``stop_texts``, or
            changes contents so that turns cannot be found again.
    """
    question = [{"role": "user", "content": _QUESTIONS[0]}]
    closed = _render_probe(template, question)
    opened = _render_probe(template, question, add_generation_prompt=True)
    header = opened.removeprefix(closed)
    if header in ("", opened):
        raise _underivable(template, "it has no generation prompt (add_generation_prompt appends nothing)")
    text, found = take_out(_render_probe(template, _probe(mark=True)), (_START, _END))
    if text != _render_probe(template, _probe()) or [mark for mark, _ in found] != [_START, _END] * len(_ANSWERS):
        raise _underivable(template, "it does not print the answers of a plain conversation as they are")
    preludes, stops = set(), set()
    for index in range(0, len(found), 2):
        content_start, content_end = found[index][1], found[index + 1][1]
        header_start = text.rfind(header, 0, content_start)
        if header_start < 0 or (index and header_start < found[index - 1][1]):
            raise _underivable(template, "its generation prompt does not open every assistant turn")
        preludes.add(text[header_start + len(header) : content_start])
        stops.add(_starting(text[content_end:].lstrip(), stop_texts))
    if len(stops) != 1 or None in stops:
        raise _underivable(template, f"it does not end assistant turns with {_shown(stop_texts)}")
    (stop,) = stops
    assert stop is not None
    return TurnShape(
        header=header,
        stop=stop,
        preludes=tuple(sorted(preludes, key=len, reverse=True)),
        tool_header=_learn_tool_header(template, header),
    )


def _learn_tool_header(template: ChatTemplate, header: str) -> str | None:
    """See :class:`TurnShape`. It must be all that the model is given behind a tool's output before it answers."""
    asked = _probe()[:2]
    marked = [{"role": role, "content": f"{_START}{text}{_END}"} for role, text in (("tool", "[1]"), _LAST_TURN)]
    plain = [{"role": "tool", "content": "[1]"}, {"role": _LAST_TURN[0], "content": _LAST_TURN[1]}]
    try:
        text, found = take_out(template.render([*asked, *marked], {}), (_START, _END))
        whole = template.render([*asked, *plain], {})
        given = template.render([*asked, plain[0]], {}, add_generation_prompt=True)
    except RowRejected:
        return None  # it has no form for tools' outputs
    if text != whole or [mark for mark, _ in found] != [_START, _END] * 2:
        return None
    between = text[found[1][1] : found[2][1]]
    return between if between and header not in between and given == text[: found[2][1]] else None


def learn_marked_stop(template: ChatTemplate, stop_texts: Sequence[str]) -> str:
    """The stop text of a template with ``{% generation %}`` marks: what ends each block, or follows right behind.

    Raises:
        ConfigError: blocks are missing, or the stop text is neither inside nor right behind them, so that the model
            would never learn to stop.
    """
    probe = _probe()
    try:
        text, spans = template.render_with_generation(probe, {})
    except RowRejected as error:
        raise _refused(template, error) from error
    boundary = text.find(_QUESTIONS[1])
    turns = [span for span in spans if span[0] < boundary], [span for span in spans if span[0] >= boundary]
    if not all(turns):
        raise ConfigError(f"chat template {template.name}: its generation blocks leave out assistant turns")
    stops = {_ending(text, turn[-1], stop_texts) for turn in turns}
    if len(stops) != 1 or None in stops:
        raise ConfigError(
            f"chat template {template.name}: its generation blocks leave out the stop token ({_shown(stop_texts)}), so "
            "the model would never learn to stop; end every block with it"
        )
    (stop,) = stops
    assert stop is not None
    return stop


def _ending(text: str, span: Span, stop_texts: Sequence[str]) -> str | None:
    inside = text[span[0] : span[1]].rstrip()
    return next((stop for stop in stop_texts if inside.endswith(stop) or text.startswith(stop, span[1])), None)


def _starting(text: str, stop_texts: Sequence[str]) -> str | None:
    return next((stop for stop in stop_texts if text.startswith(stop)), None)


def _probe(*, mark: bool = False) -> list[dict[str, str]]:
    start, end = (_START, _END) if mark else ("", "")
    messages = []
    for question, answer in zip(_QUESTIONS, _ANSWERS, strict=True):
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": f"{start}{answer}{end}"})
    return messages


def _render_probe(
    template: ChatTemplate, messages: Sequence[dict[str, str]], *, add_generation_prompt: bool = False
) -> str:
    try:
        return template.render(messages, {}, add_generation_prompt=add_generation_prompt)
    except RowRejected as error:
        raise _refused(template, error) from error


def _refused(template: ChatTemplate, error: RowRejected) -> ConfigError:
    if template.asks_for_date and "strftime_now" in error.detail:
        return ConfigError(
            f"chat template {template.name} asks for today's date (strftime_now), so its data would change from day to "
            "day; put a fixed date into a copy of the template and give that as chat_template"
        )
    return ConfigError(f"chat template {template.name} fails on a plain conversation: {error.detail}")


def _underivable(template: ChatTemplate, why: str) -> ConfigError:
    return ConfigError(
        f"chat template {template.name}: which tokens to train on cannot be derived, since {why}; put "
        "{% generation %} ... {% endgeneration %} around what the model writes, its stop token included, in a copy of "
        "the template and give that as chat_template"
    )


def _shown(stop_texts: Sequence[str]) -> str:
    return f"{stop_texts[0]!r} or another special token" if len(stop_texts) > 1 else repr(stop_texts[0])
