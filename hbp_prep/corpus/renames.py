"""Other names for columns, for the keys of messages and for roles: what a source's ``columns`` and ``roles`` say."""

from collections.abc import Mapping
from typing import Any

MESSAGE_KEYS = ("role", "content")
_CHAT_COLUMNS = frozenset({"messages", "conversations", "prompt", "completion", "response", "chosen"})


def rename_columns(row: Any, columns: Mapping[str, str]) -> Any:
    """``row`` with each name that the format expects taken from the file's name for it: ``{expected: in the file}``.

    A column of the file that is taken, or that has an expected name without being named for it, is not seen under its
    own name.
    """
    named = {expected: in_file for expected, in_file in columns.items() if expected not in MESSAGE_KEYS}
    if not named or not isinstance(row, dict):
        return row
    hidden = {*named, *named.values()}
    renamed = {name: value for name, value in row.items() if name not in hidden}
    for expected, in_file in named.items():
        if in_file in row:
            renamed[expected] = row[in_file]
    return renamed


def rename_keys(row: Any, columns: Mapping[str, str], roles: Mapping[str, str]) -> Any:
    """``row`` with the keys ``role`` and ``content`` of every message taken from the file's names for them, and roles
    renamed: what ``columns`` and ``roles`` of a source say of messages.
    """
    keys = {columns[name]: name for name in MESSAGE_KEYS if name in columns}

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return [_rename_in(message, keys, roles) for message in value]
        return _rename_in(value, keys, roles)

    if not isinstance(row, dict):
        return renamed(row)
    return {name: renamed(value) if name in _CHAT_COLUMNS else value for name, value in row.items()}


def _rename_in(message: Any, keys: Mapping[str, str], roles: Mapping[str, str]) -> Any:
    if not isinstance(message, dict):
        return message
    renamed = {
        keys.get(name, name): value for name, value in message.items() if name in keys or name not in keys.values()
    }
    for key in ("role", "from"):
        role = renamed.get(key)
        if isinstance(role, str) and role in roles:
            renamed[key] = roles[role]
    return renamed
