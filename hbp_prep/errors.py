"""The one tree of errors that users see: a clear sentence and an exit code, never a traceback."""


def first_line(error: BaseException) -> str:
    """What a library's error says, in one line; its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class HbpError(Exception):
    """Something that the user can understand and mend. ``str(error)`` is the whole message.

    The message says what is wrong, where (file, row, key) and what to do.
    """

    exit_code = 1


class ConfigError(HbpError):
    """The recipe, an option or the way of calling is wrong (exit code 2)."""

    exit_code = 2


class DataError(HbpError):
    """Input data cannot be used: a missing file, too many bad rows, a broken tokenizer."""


class PlanError(HbpError):
    """No valid plan exists for these samples, packing groups and world size."""


class ManifestError(HbpError):
    """A prepared folder is unfinished, damaged, or of a format that this version does not read."""
