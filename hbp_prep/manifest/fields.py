"""Reading parsed JSON by hand: every value is checked, and an error names the key's path and what was found."""

from typing import Any

from hbp_prep.errors import ManifestError

_MOST_SHOWN = 60
_LARGEST = 2**63 - 1


class Fields:
    """One JSON object and the path that leads to it, e.g. ``groups[0].shards[2]``."""

    def __init__(self, value: object, path: str = "") -> None:
        self._path = path
        if not isinstance(value, dict):
            raise ManifestError(f"{path or 'the whole file'}: expected an object, found {_shown(value)}")
        self._values: dict[str, Any] = value

    def path(self, key: str) -> str:
        """The full path of ``key``, for messages."""
        return f"{self._path}.{key}" if self._path else key

    def text(self, key: str) -> str:
        """A string that is not empty."""
        value = self._get(key)
        if not isinstance(value, str) or not value:
            raise self._error(key, "a string", value)
        return value

    def integer(self, key: str, *, minimum: int = 0) -> int:
        """A whole number of at least ``minimum``."""
        value = self._get(key)
        if not _is_integer(value) or not minimum <= value <= _LARGEST:
            raise self._error(key, f"a whole number of at least {minimum}", value)
        return int(value)

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self._get(key)
        if not isinstance(value, bool):
            raise self._error(key, "true or false", value)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._get(key)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self._error(key, "a list of strings", value)
        return tuple(value)

    def counts(self, key: str) -> dict[str, int]:
        """An object of whole numbers of at least 0."""
        value = self._get(key)
        if not isinstance(value, dict) or not all(
            _is_integer(item) and 0 <= item <= _LARGEST for item in value.values()
        ):
            raise self._error(key, "an object of whole numbers", value)
        return dict(value)

    def child(self, key: str) -> "Fields":
        """An object."""
        return Fields(self._get(key), self.path(key))

    def children(self, key: str) -> list["Fields"]:
        """A list of objects."""
        value = self._get(key)
        if not isinstance(value, list | tuple):
            raise self._error(key, "a list", value)
        return [Fields(item, f"{self.path(key)}[{index}]") for index, item in enumerate(value)]

    def named_children(self, key: str) -> dict[str, "Fields"]:
        """An object of objects."""
        outer = self.child(key)
        return {name: outer.child(name) for name in outer.plain()}

    def plain(self) -> dict[str, Any]:
        """The object as it is, unchecked."""
        return dict(self._values)

    def _get(self, key: str) -> Any:
        if key not in self._values:
            raise ManifestError(f"{self.path(key)}: missing")
        return self._values[key]

    def _error(self, key: str, expected: str, found: object) -> ManifestError:
        return ManifestError(f"{self.path(key)}: expected {expected}, found {_shown(found)}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."
