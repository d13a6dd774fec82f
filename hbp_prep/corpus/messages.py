"""Messages of a chat, in either style that corpora use, as the one shape that chat templates read.

Two styles, told apart by their keys: ``role`` and ``content`` (OpenAI), ``from`` and ``value`` (ShareGPT). Roles and
speakers are compared exactly: ``User`` or ``" user"`` is not ``user``, since a template would not take it for one. A
corpus that has such roles shows in the count of rejected rows, with the nearest known role named.

A template is given ``role``, ``content`` and those of ``_KEPT`` that are there and not null (``loss_weight`` is another
name for ``weight``); whatever else a message carries, such as an index or a score, is dropped. Content is a string; it
is ``None`` only beside ``tool_calls``, as templates test for that. Content in parts becomes the parts' text, joined; a
part that is no text (an image) rejects the row.
"""

from typing import Any

import orjson

from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.suggest import did_you_mean

ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool", "developer": "system"}
SPEAKERS = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}
_TEXT_KEYS = ("tool_call_id", "name", "reasoning_content")
_KEPT = (*_TEXT_KEYS, "tool_calls", "weight", "train")
_SHOWN_CHARACTERS = 40


def convert_messages(value: Any, where: str = "messages") -> list[dict[str, Any]]:
    """Every message of the list ``value``; ``where`` names it in details, as ``messages[2]``.

    Raises:
        RowRejected: BAD_ROW (no list, or a message that is no object), NO_MESSAGES, BAD_ROLE, BAD_CONTENT.
    """
    if not isinstance(value, list):
        raise RowRejected(Reason.BAD_ROW, f"{where} is {type_name(value)}, not a list of messages")
    if not value:
        raise RowRejected(Reason.NO_MESSAGES, f"{where} is empty")
    messages = []
    for index, message in enumerate(value):
        # Nearly all messages are as plain as this.
        if type(message) is dict and len(message) == 2:
            role, content = message.get("role"), message.get("content")
            if type(role) is str and type(content) is str and role in ROLES:
                messages.append({"role": ROLES[role], "content": content})
                continue
        messages.append(_convert_message(message, where, index))
    return messages


def is_message(value: Any) -> bool:
    """Whether ``value`` looks like a message of either style (for detection only)."""
    return isinstance(value, dict) and any(isinstance(value.get(key), str) for key in ("role", "from"))


def text_message(role: str, text: Any, where: str) -> dict[str, Any]:
    """A message made of a column that holds its text."""
    if not isinstance(text, str):
        raise RowRejected(Reason.BAD_CONTENT, f"{where} is {type_name(text)}, not a string")
    return {"role": role, "content": text}


def type_name(value: Any) -> str:
    """What JSON calls ``value``, for details."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), f"of type {type(value).__name__}")


def parse_json_text(text: str, where: str) -> Any:
    """The JSON inside the string ``text``."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RowRejected(Reason.BAD_ROW, f"{where} is a string, but not JSON: {error}") from None


def _convert_message(message: Any, where: str, index: int) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise RowRejected(Reason.BAD_ROW, f"{where}[{index}] is {type_name(message)}, not an object")
    role = message.get("role")
    if role is not None:
        known, content_key = ROLES, "content"
    else:
        role, known, content_key = message.get("from"), SPEAKERS, "value"
    if not isinstance(role, str):
        raise RowRejected(Reason.BAD_ROLE, f"{where}[{index}] has no role (a string under 'role' or 'from')")
    if role not in known:
        shown = role[:_SHOWN_CHARACTERS]
        raise RowRejected(Reason.BAD_ROLE, f"{where}[{index}] has the role {shown!r}{did_you_mean(shown, known)}")
    content = message.get(content_key)
    if len(message) == 2 and isinstance(content, str):
        return {"role": known[role], "content": content}
    place = f"{where}[{index}]"
    extras = _extras(message, place)
    return {"role": known[role], "content": _content(content, place, content_key, "tool_calls" in extras), **extras}


def _content(content: Any, place: str, key: str, may_be_empty: bool) -> str | None:
    if isinstance(content, str):
        return content
    if content is None or content == []:
        if may_be_empty:
            return None
        raise RowRejected(Reason.BAD_CONTENT, f"{place} has no {key}")
    if not isinstance(content, list):
        raise RowRejected(Reason.BAD_CONTENT, f"{place}.{key} is {type_name(content)}, not a string")
    return "".join(_part_text(part, f"{place}.{key}[{number}]") for number, part in enumerate(content))


def _part_text(part: Any, place: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise RowRejected(Reason.BAD_CONTENT, f"{place} is {type_name(part)}, not a part of text")
    if part.get("type") != "text":
        shown = str(part.get("type"))[:_SHOWN_CHARACTERS]
        raise RowRejected(Reason.BAD_CONTENT, f"{place} is a part of type {shown!r}; only 'text' can be trained on")
    for key in ("text", "value"):
        if isinstance(part.get(key), str):
            return part[key]
    raise RowRejected(Reason.BAD_CONTENT, f"{place} is a text part without text")


def _extras(message: dict[str, Any], place: str) -> dict[str, Any]:
    """The keys besides role and content that templates and the loss mask read, checked."""
    extras = {key: message[key] for key in _KEPT if message.get(key) is not None}
    if "weight" not in extras and message.get("loss_weight") is not None:
        extras["weight"] = message["loss_weight"]
    if "tool_calls" in extras:
        extras["tool_calls"] = _tool_calls(extras["tool_calls"], place)
        if not extras["tool_calls"]:
            del extras["tool_calls"]
    for key in _TEXT_KEYS:
        if not isinstance(extras.get(key, ""), str):
            raise RowRejected(Reason.BAD_CONTENT, f"{place}.{key} is {type_name(extras[key])}, not a string")
    if not isinstance(extras.get("train", True), bool):
        raise RowRejected(Reason.BAD_CONTENT, f"{place}.train is {type_name(extras['train'])}, not true or false")
    if extras.get("weight", 1) not in (0, 1):
        raise RowRejected(Reason.BAD_CONTENT, f"{place}.weight is neither 0 nor 1")
    return extras


def _tool_calls(calls: Any, place: str) -> list[dict[str, Any]]:
    """Calls as the row has them: ``{"function": {"name", "arguments"}}`` or ``{"name", "arguments"}``.

    Arguments stay the string or the object that they are: which of the two a template reads is the template's affair.
    """
    if isinstance(calls, str):
        calls = parse_json_text(calls, f"{place}.tool_calls")
    if not isinstance(calls, list):
        raise RowRejected(Reason.BAD_CONTENT, f"{place}.tool_calls is {type_name(calls)}, not a list")
    for number, call in enumerate(calls):
        where = f"{place}.tool_calls[{number}]"
        function = call.get("function") if isinstance(call, dict) and call.get("function") is not None else call
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RowRejected(Reason.BAD_CONTENT, f"{where} does not name a function")
        if not isinstance(function.get("arguments"), str | dict | None):
            raise RowRejected(Reason.BAD_CONTENT, f"{where}: arguments are neither an object nor a string")
    return calls
