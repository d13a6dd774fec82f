"""What row formats share: checked access to columns, and the parts that any row may have besides its chat."""

from typing import Any

from hbp_prep.corpus.messages import parse_json_text, text_message, type_name
from hbp_prep.corpus.types import Conversation
from hbp_prep.reasons import Reason, RowRejected

ID_COLUMNS = ("id", "_id", "idx", "uuid", "conversation_id", "prompt_id")
COMMON_COLUMNS = (*ID_COLUMNS, "system", "tools", "chat_template_kwargs")
_RESERVED_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt"})

Row = dict[str, Any]


def conversation_of(row: Row, messages: list[dict[str, Any]]) -> Conversation:
    """The messages with what every format may have besides: system prompt, id, tools and template variables."""
    system = row.get("system")
    if system is not None and text_message("system", system, "system")["content"].strip():
        if messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": system})
        elif messages[0]["content"] != system:
            raise RowRejected(
                Reason.BAD_ROW, "the row has two system prompts: its system column, and its first message"
            )
    return Conversation(messages, original_id(row), _template_kwargs(row))


def original_id(row: Row) -> str | None:
    """The row's own id, from the first of ``ID_COLUMNS`` that has one."""
    for column in ID_COLUMNS:
        value = row.get(column)
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return str(value)
    return None


def _template_kwargs(row: Row) -> dict[str, Any]:
    if row.get("tools") is None and row.get("chat_template_kwargs") is None:
        return {}
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


def object_of(row: Any) -> Row:
    """The row, which must be a JSON object."""
    if not isinstance(row, dict):
        raise RowRejected(Reason.BAD_ROW, f"the row is {type_name(row)}, not an object")
    return row


def required(row: Row, column: str) -> Any:
    """The value of a column that the row must have."""
    if column not in row:
        raise RowRejected(Reason.BAD_ROW, f"the row has no {column!r}")
    return row[column]


def one_of(row: Row, first: str, second: str) -> str:
    """Which of two names for the same column the row has (a null counts as absent)."""
    given = [name for name in (first, second) if row.get(name) is not None]
    if not given:
        raise RowRejected(Reason.BAD_ROW, f"the row has neither {first!r} nor {second!r}")
    if len(given) == 2 and row[first] != row[second]:
        raise RowRejected(Reason.BAD_ROW, f"the row has both {first!r} and {second!r}, and they differ")
    return given[0]
