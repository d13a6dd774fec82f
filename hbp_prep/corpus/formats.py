"""Row formats: what the columns of one row mean as a chat. A dictionary from a format's name to how it is read.

Every format but ``bare`` also reads, where the row has them: an id (``ID_COLUMNS``), ``system`` (a system prompt, put
before the messages), ``tools`` (a list of tool descriptions, or JSON text of one) and ``chat_template_kwargs`` (further
variables for the template). Other columns are ignored.

A conversion takes any JSON value and returns a Conversation or raises RowRejected, nothing else. It does not judge
whether there is anything to train on: a chat without an assistant turn is rejected where the loss mask is made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hbp_prep.corpus.messages import convert_messages, is_message, parse_json_text, text_message, type_name
from hbp_prep.corpus.types import Conversation
from hbp_prep.errors import ConfigError
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.suggest import did_you_mean

ID_COLUMNS = ("id", "_id", "idx", "uuid", "conversation_id", "prompt_id")
_COMMON_COLUMNS = (*ID_COLUMNS, "system", "tools", "chat_template_kwargs")
PREFERENCE_COLUMNS = ("chosen", "rejected", "label")
_RESERVED_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt"})

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RowFormat:
    """One way to write a chat as a row.

    Attributes:
        name: Key in ``ROW_FORMATS``.
        needs: The columns it needs, for messages to users.
        columns: Every column it reads.
        detect: Whether a row (any JSON value) looks like this format.
        convert: The row as a Conversation; raises RowRejected, whatever the value.
    """

    name: str
    needs: str
    columns: tuple[str, ...]
    detect: Callable[[Any], bool]
    convert: Callable[[Any], Conversation]


def row_format(name: str) -> RowFormat:
    """The format called ``name``.

    Raises:
        ConfigError: there is none.
    """
    if name not in ROW_FORMATS:
        raise ConfigError(f"unknown row format {name!r}{did_you_mean(name, [*ROW_FORMATS, 'auto'])}")
    return ROW_FORMATS[name]


def rename_columns(row: Any, columns: Mapping[str, str]) -> Any:
    """``row`` with each name that the format expects taken from the file's name for it: ``{expected: in the file}``.

    A column of the file that is taken, or that has an expected name without being named for it, is not seen under its
    own name.
    """
    if not columns or not isinstance(row, dict):
        return row
    hidden = {*columns, *columns.values()}
    renamed = {name: value for name, value in row.items() if name not in hidden}
    for expected, in_file in columns.items():
        if in_file in row:
            renamed[expected] = row[in_file]
    return renamed


def is_preference_pair(row: Any) -> bool:
    """Whether a row holds a better and a worse answer (DPO) or a verdict on one (KTO): not all is to be learnt."""
    if not isinstance(row, dict):
        return False
    pair = row.get("chosen") is not None and row.get("rejected") is not None
    return pair or isinstance(row.get("label"), bool)


def _from_list(column: str) -> Callable[[Any], Conversation]:
    def convert(row: Any) -> Conversation:
        row = _object(row)
        if column not in row:
            raise RowRejected(Reason.BAD_ROW, f"the row has no {column!r}")
        return _conversation(row, convert_messages(row[column], column))

    return convert


def _prompt_response(row: Any) -> Conversation:
    row = _object(row)
    answer = _one_of(row, "completion", "response")
    messages = [*_side(row, "prompt", "user"), *_side(row, answer, "assistant")]
    if not messages:
        raise RowRejected(Reason.NO_MESSAGES, f"prompt and {answer} are empty")
    return _conversation(row, messages)


def _side(row: Row, column: str, role: str) -> list[dict[str, Any]]:
    """One side of a prompt and response: a text, or a list of messages, which may be empty."""
    value = _required(row, column)
    if isinstance(value, list):
        return convert_messages(value, column) if value else []
    return [text_message(role, value, column)]


def _alpaca(row: Any) -> Conversation:
    row = _object(row)
    instruction = text_message("user", _required(row, "instruction"), "instruction")
    context = row.get("input")
    if context is not None and text_message("user", context, "input")["content"].strip():
        instruction["content"] += "\n\n" + context
    answer = _one_of(row, "output", "response")
    return _conversation(row, [*_history(row), instruction, text_message("assistant", row[answer], answer)])


def _history(row: Row) -> list[dict[str, Any]]:
    """Earlier turns: ``[[user's text, assistant's text], ...]``."""
    history = row.get("history")
    if history is None:
        return []
    if not isinstance(history, list):
        raise RowRejected(Reason.BAD_ROW, f"history is {type_name(history)}, not a list of pairs")
    messages = []
    for index, pair in enumerate(history):
        if not isinstance(pair, list) or len(pair) != 2:
            raise RowRejected(Reason.BAD_ROW, f"history[{index}] is not a pair of user's and assistant's text")
        messages.append(text_message("user", pair[0], f"history[{index}][0]"))
        messages.append(text_message("assistant", pair[1], f"history[{index}][1]"))
    return messages


def _question_answer(row: Any) -> Conversation:
    row = _object(row)
    question = text_message("user", _required(row, "question"), "question")
    return _conversation(row, [question, text_message("assistant", _required(row, "answer"), "answer")])


def _bare(row: Any) -> Conversation:
    return Conversation(convert_messages(row, "row"), None)


def _conversation(row: Row, messages: list[dict[str, Any]]) -> Conversation:
    system = row.get("system")
    if system is not None and text_message("system", system, "system")["content"].strip():
        if messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": system})
        elif messages[0]["content"] != system:
            raise RowRejected(
                Reason.BAD_ROW, "the row has two system prompts: its system column, and its first message"
            )
    return Conversation(messages, _original_id(row), _template_kwargs(row))


def _original_id(row: Row) -> str | None:
    for column in ID_COLUMNS:
        value = row.get(column)
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return str(value)
    return None


def _template_kwargs(row: Row) -> dict[str, Any]:
    kwargs: dict[str, Any] = {}
    tools = _json_column(row, "tools")
    if tools is not None and not isinstance(tools, list):
        raise RowRejected(Reason.BAD_ROW, f"tools is {type_name(tools)}, not a list")
    if tools:
        kwargs["tools"] = [parse_json_text(tool, "tools") if isinstance(tool, str) else tool for tool in tools]
        if not all(isinstance(tool, dict) for tool in kwargs["tools"]):
            raise RowRejected(Reason.BAD_ROW, "tools has an element that is no object")
    further = _json_column(row, "chat_template_kwargs")
    if further is None:
        return kwargs
    if not isinstance(further, dict):
        raise RowRejected(Reason.BAD_ROW, f"chat_template_kwargs is {type_name(further)}, not an object")
    if reserved := sorted(_RESERVED_VARIABLES & further.keys()):
        raise RowRejected(Reason.BAD_ROW, f"chat_template_kwargs may not set {', '.join(reserved)}")
    return kwargs | {name: value for name, value in further.items() if value is not None}


def _json_column(row: Row, column: str) -> Any:
    value = row.get(column)
    if not isinstance(value, str):
        return value
    return parse_json_text(value, column) if value.strip() else None


def _object(row: Any) -> Row:
    if not isinstance(row, dict):
        raise RowRejected(Reason.BAD_ROW, f"the row is {type_name(row)}, not an object")
    return row


def _required(row: Row, column: str) -> Any:
    if column not in row:
        raise RowRejected(Reason.BAD_ROW, f"the row has no {column!r}")
    return row[column]


def _one_of(row: Row, first: str, second: str) -> str:
    """Which of two names for the same column the row has (a null counts as absent)."""
    given = [name for name in (first, second) if row.get(name) is not None]
    if not given:
        raise RowRejected(Reason.BAD_ROW, f"the row has neither {first!r} nor {second!r}")
    if len(given) == 2 and row[first] != row[second]:
        raise RowRejected(Reason.BAD_ROW, f"the row has both {first!r} and {second!r}, and they differ")
    return given[0]


def _has_list(column: str) -> Callable[[Any], bool]:
    return lambda row: isinstance(row, dict) and _is_chat(row.get(column))


def _has_texts(question: str, *answers: str, chats: bool = False) -> Callable[[Any], bool]:
    """Whether a row has a text in ``question`` and in one of ``answers`` (with ``chats``: or a list of messages)."""

    def detect(row: Any) -> bool:
        def is_side(name: str) -> bool:
            return isinstance(row.get(name), str) or (chats and _is_chat(row.get(name)))

        return isinstance(row, dict) and is_side(question) and any(map(is_side, answers))

    return detect


def _is_chat(value: Any) -> bool:
    return isinstance(value, list) and (not value or is_message(value[0]))


def _format(
    name: str,
    needs: str,
    columns: tuple[str, ...],
    detect: Callable[[Any], bool],
    convert: Callable[[Any], Conversation],
) -> RowFormat:
    return RowFormat(name=name, needs=needs, columns=(*columns, *_COMMON_COLUMNS), detect=detect, convert=convert)


# In the order of detection: the first that fits a row has its vote.
ROW_FORMATS: dict[str, RowFormat] = {
    row_format.name: row_format
    for row_format in (
        _format("messages", "messages", ("messages",), _has_list("messages"), _from_list("messages")),
        _format(
            "conversations",
            "conversations",
            ("conversations",),
            _has_list("conversations"),
            _from_list("conversations"),
        ),
        _format(
            "alpaca",
            "instruction, output (or response), perhaps input and history",
            ("instruction", "input", "output", "response", "history"),
            _has_texts("instruction", "output", "response"),
            _alpaca,
        ),
        _format(
            "prompt_response",
            "prompt, completion (or response)",
            ("prompt", "completion", "response"),
            _has_texts("prompt", "completion", "response", chats=True),
            _prompt_response,
        ),
        _format(
            "question_answer",
            "question, answer",
            ("question", "answer"),
            _has_texts("question", "answer"),
            _question_answer,
        ),
        RowFormat(
            name="bare",
            needs="no columns: the row itself is a list of messages",
            columns=(),
            detect=lambda row: bool(row) and _is_chat(row),
            convert=_bare,
        ),
    )
}
