"""The fixed vocabulary of reasons for which an input row is not trained on, and the exception that carries one."""

from enum import StrEnum


class Reason(StrEnum):
    """Values of ``rejected.arrow``'s ``reason`` column."""

    INVALID_JSON = "invalid_json"
    INVALID_UTF8 = "invalid_utf8"
    BAD_ROW = "bad_row"  # the row is not an object, or lacks the columns of its format
    NO_MESSAGES = "no_messages"
    BAD_ROLE = "bad_role"
    BAD_CONTENT = "bad_content"  # a message whose content (or tool calls) cannot be understood
    LONE_SURROGATE = "lone_surrogate"
    NO_LOSS_TOKENS = "no_loss_tokens"
    TOO_LONG = "too_long"
    TOO_SHORT = "too_short"
    TEMPLATE_ERROR = "template_error"
    SPANS_UNPROVEN = "spans_unproven"  # the loss spans could not be proven on this row
    NOT_SELECTED = "not_selected"  # left out by the source's weight, limit or filter, not a fault
    DUPLICATE = "duplicate"  # the same conversation came before, not a fault


class RowRejected(Exception):
    """One row cannot be used. Caught where rows are read: it becomes a line of ``rejected.arrow``."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
