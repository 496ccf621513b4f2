"""Typed look-ups in a checkpoint's metadata: every wrong type is an error that names its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from cluster.errors import BadCheckpoint

T = TypeVar("T", int, float, str, bool)


class Fields:
    """A mapping that came from a file, and the file's name for messages. null counts as absent."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def states(self, key: str) -> bool:
        """True when the key is there, null or not."""
        return key in self._values

    def names(self) -> list[str]:
        """Every key."""
        return list(self._values)

    def sections(self) -> list[str]:
        """The keys of mappings inside this one."""
        return [key for key, value in self._values.items() if isinstance(value, Mapping)]

    def without(self, *keys: str) -> Fields:
        """The same, as if these keys were absent."""
        return Fields({k: v for k, v in self._values.items() if k not in keys}, self.where)

    def raw(self, key: str) -> Any:
        """The value as it is, or None."""
        return self._values.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        """Raises BadCheckpoint when absent without a default, or not an integer."""
        return self._typed(key, int, default)

    def text(self, key: str, default: str | None = None) -> str:
        return self._typed(key, str, default)

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self._typed(key, bool, default)

    def number(self, key: str, default: float | None = None) -> float:
        """An integer is a number too."""
        value = self._values.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._float(key, value)
        return self._typed(key, float, default)

    def section(self, key: str) -> Fields:
        """A mapping inside this one; empty when absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self._wrong(key, value, "an object")
        return Fields(value or {}, f"{self.where}: {key}")

    def texts(self, key: str) -> list[str]:
        """A list of strings; empty when absent."""
        value = self._values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, value, "a list of strings")
        return value

    def integers(self, key: str) -> list[int]:
        """A list of integers; empty when absent."""
        value = self._values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise self._wrong(key, value, "a list of integers")
        return value

    def _typed(self, key: str, kind: type[T], default: T | None) -> T:
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise BadCheckpoint(f"{self.where} lacks {key!r}")
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise self._wrong(key, value, kind.__name__)
        return value

    def _float(self, key: str, value: int) -> float:
        try:
            return float(value)
        except OverflowError:
            raise self._wrong(key, value, "a number") from None

    def _wrong(self, key: str, value: object, wanted: str) -> BadCheckpoint:
        shown = f"{type(value).__name__} {value!r}"[:80]
        return BadCheckpoint(f"{self.where}: {key!r} is {shown}; it must be {wanted}")
