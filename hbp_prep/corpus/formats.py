"""Row formats: what the columns of one row mean as a chat. A dictionary from a format's name to how it is read.

Every format but ``bare``, ``oasst`` and ``text`` also reads, where the row has them: an id (``ID_COLUMNS``), ``system``
(a system prompt, put before the messages), ``tools`` (a list of tool descriptions, or JSON text of one) and
``chat_template_kwargs`` (further variables for the template). Other columns are ignored.

A conversion takes any JSON value and returns a Conversation or raises RowRejected, nothing else. It does not judge
whether there is anything to train on: a chat without an assistant turn is rejected where the loss mask is made.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hbp_prep.corpus.messages import convert_messages, is_message, text_message, type_name
from hbp_prep.corpus.rowparts import (
    COMMON_COLUMNS,
    ID_COLUMNS,
    Row,
    conversation_of,
    object_of,
    one_of,
    original_id,
    required,
)
from hbp_prep.corpus.types import Conversation
from hbp_prep.errors import ConfigError
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.suggest import did_you_mean

PREFERENCE_COLUMNS = ("chosen", "rejected", "label")
_OASST_ROLES = {"prompter": "user", "assistant": "assistant"}


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


def is_preference_pair(row: Any) -> bool:
    """Whether a row holds a better and a worse answer (DPO)."""
    return isinstance(row, dict) and row.get("chosen") is not None and row.get("rejected") is not None


def is_verdict(row: Any) -> bool:
    """Whether a row holds a verdict on its answer (KTO): not all such answers are to be learnt."""
    return isinstance(row, dict) and isinstance(row.get("label"), bool)


def _from_list(column: str) -> Callable[[Any], Conversation]:
    def convert(row: Any) -> Conversation:
        row = object_of(row)
        if column not in row:
            raise RowRejected(Reason.BAD_ROW, f"the row has no {column!r}")
        return conversation_of(row, convert_messages(row[column], column))

    return convert


def _prompt_response(row: Any) -> Conversation:
    row = object_of(row)
    answer = one_of(row, "completion", "response")
    messages = [*_side(row, "prompt", "user"), *_side(row, answer, "assistant")]
    if not messages:
        raise RowRejected(Reason.NO_MESSAGES, f"prompt and {answer} are empty")
    return conversation_of(row, messages)


def _side(row: Row, column: str, role: str) -> list[dict[str, Any]]:
    """One side of a prompt and response: a text, or a list of messages, which may be empty."""
    value = required(row, column)
    if isinstance(value, list):
        return convert_messages(value, column) if value else []
    return [text_message(role, value, column)]


def _alpaca(row: Any) -> Conversation:
    row = object_of(row)
    instruction = text_message("user", required(row, "instruction"), "instruction")
    instruction["content"] += _context(row)
    answer = one_of(row, "output", "response")
    return conversation_of(row, [*_history(row), instruction, text_message("assistant", row[answer], answer)])


def _context(row: Row) -> str:
    """What Alpaca rows add to the instruction."""
    context = row.get("input")
    if context is None or not text_message("user", context, "input")["content"].strip():
        return ""
    return f"\n\n{context}"


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
    row = object_of(row)
    question = text_message("user", required(row, "question"), "question")
    return conversation_of(row, [question, text_message("assistant", required(row, "answer"), "answer")])


def _preference(row: Any) -> Conversation:
    """The better answer; whole chats on both sides, or a prompt before them in any of the forms in use."""
    row = object_of(row)
    chosen = required(row, "chosen")
    if isinstance(chosen, str):
        answer = [text_message("assistant", chosen, "chosen")]
    else:
        answer = convert_messages([chosen] if isinstance(chosen, dict) else chosen, "chosen")
    if any(message["role"] == "user" for message in answer):
        return conversation_of(row, answer)
    return conversation_of(row, [*_request(row), *answer])


def _request(row: Row) -> list[dict[str, Any]]:
    """What a preference row's answers answer."""
    for column in ("prompt", "messages", "conversations", "question", "instruction"):
        value = row.get(column)
        if value is None:
            continue
        if isinstance(value, list):
            return convert_messages(value, column)
        request = text_message("user", value, column)
        if column == "instruction":
            request["content"] += _context(row)
        return [*_history(row), request]
    raise RowRejected(Reason.BAD_ROW, "chosen holds no user's message, and the row has no prompt")


def _oasst(row: Any) -> Conversation:
    """An OpenAssistant tree: from the prompt down, at every fork the reply of the best rank (0), not deleted."""
    node = required(object_of(row), "prompt")
    if node is None:
        raise RowRejected(Reason.BAD_ROW, "prompt is null, not the root of a tree")
    messages: list[dict[str, Any]] = []
    while node is not None:
        where = f"message {len(messages)} of the tree"
        if not isinstance(node, dict):
            raise RowRejected(Reason.BAD_ROW, f"{where} is {type_name(node)}, not an object")
        role = node.get("role")
        if role not in _OASST_ROLES:
            raise RowRejected(Reason.BAD_ROLE, f"{where} has the role {str(role)[:40]!r}, not prompter or assistant")
        messages.append(text_message(_OASST_ROLES[role], node.get("text"), f"{where}: text"))
        node = _best_reply(node.get("replies"), where)
    if messages[-1]["role"] == "user":
        messages.pop()  # a question that nobody answered
    if not messages:
        raise RowRejected(Reason.NO_LOSS_TOKENS, "nobody answered the tree's prompt")
    tree_id = row.get("message_tree_id")
    return Conversation(messages, tree_id if isinstance(tree_id, str) else original_id(row))


def _best_reply(replies: Any, where: str) -> Any:
    """The reply of the lowest rank; those without one come last, equal ones in the order of the file."""
    if replies is None:
        return None
    if not isinstance(replies, list):
        raise RowRejected(Reason.BAD_ROW, f"{where}: replies is {type_name(replies)}, not a list")
    kept = [reply for reply in replies if not (isinstance(reply, dict) and reply.get("deleted") is True)]

    def rank(reply: Any) -> float:
        value = reply.get("rank") if isinstance(reply, dict) else None
        return value if isinstance(value, int | float) and not isinstance(value, bool) else math.inf

    return min(kept, key=rank, default=None)


def _is_tree(row: Any) -> bool:
    prompt = row.get("prompt") if isinstance(row, dict) else None
    return isinstance(prompt, dict) and isinstance(prompt.get("replies"), list) and isinstance(prompt.get("text"), str)


def _text(row: Any) -> Conversation:
    row = object_of(row)
    text = text_message("assistant", required(row, "text"), "text")["content"]
    if not text:
        raise RowRejected(Reason.BAD_CONTENT, "text is empty")
    return Conversation([], original_id(row), text=text)


def _bare(row: Any) -> Conversation:
    return Conversation(convert_messages(row, "row"), None)


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
    return RowFormat(name=name, needs=needs, columns=(*columns, *COMMON_COLUMNS), detect=detect, convert=convert)


# In the order of detection: the first that fits a row has its vote.
ROW_FORMATS: dict[str, RowFormat] = {
    row_format.name: row_format
    for row_format in (
        _format(
            "preference",
            "chosen, rejected, and a prompt where chosen is not the whole chat",
            (
                "chosen",
                "rejected",
                "prompt",
                "messages",
                "conversations",
                "question",
                "instruction",
                "input",
                "history",
            ),
            is_preference_pair,
            _preference,
        ),
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
            name="oasst",
            needs="prompt (an OpenAssistant tree: text, role, replies)",
            columns=("prompt", "message_tree_id", *ID_COLUMNS),
            detect=_is_tree,
            convert=_oasst,
        ),
        RowFormat(
            name="text",
            needs="text (a document: every token is trained, without a chat template)",
            columns=("text", *ID_COLUMNS),
            detect=lambda row: isinstance(row, dict) and isinstance(row.get("text"), str),
            convert=_text,
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
