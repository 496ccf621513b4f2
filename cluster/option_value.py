"""One option: its name in every spelling, and how its value is read, checked and written."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cluster.errors import ConfigError

ENVIRONMENT_PREFIX = "SPLITSERVE_"

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_ABSENT = frozenset({"", "none", "auto"})
_SIZES = "bytes, or a size such as 512MiB"
_SIZE = re.compile(r"([0-9]+)[ \t]*(KiB|MiB|GiB|TiB|B)?", re.IGNORECASE | re.ASCII)
SIZE_UNITS = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


class TextForm(NamedTuple):
    """What a text has to look like."""

    pattern: str
    """Of the whole text, for Python's `re` and for JSON Schema."""
    allowed: str
    """The same in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec:
    """What is known of one option; made from a dataclass field by `cluster/options.py`."""

    name: str
    kind: type
    """bool, int, float, str or an Enum of strings."""
    optional: bool
    """None is allowed, and written as "none" or "auto"."""
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    form: TextForm | None = None
    """Of a text; None: any."""

    @property
    def flag(self) -> str:
        """As on a command line: `--max-num-seqs`."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """As in the environment: `SPLITSERVE_MAX_NUM_SEQS`."""
        return ENVIRONMENT_PREFIX + self.name.upper()

    def parse(self, raw: object, *, source: str) -> Any:
        """The checked value. Raises ConfigError naming `source`, the value and what is allowed."""
        value = self._converted(raw, source)
        if value is None:
            return None
        if self.choices and value not in self.choices:
            raise self._refusal(raw, source, f"one of {', '.join(self.choices)}")
        if self.form is not None and not re.fullmatch(self.form.pattern, value):
            raise self._refusal(raw, source, self.form.allowed)
        if isinstance(value, int | float) and not self._inside(value):
            raise self._refusal(raw, source, _interval(self.low, self.high))
        return value

    def parse_typed(self, raw: object, *, source: str) -> Any:
        """As `parse`, of a file whose values have types: there text is no number and no truth, and
        8000.0 is a whole one."""
        if isinstance(raw, float) and raw.is_integer() and self.kind is int:
            raw = int(raw)
        if isinstance(raw, str) and self.kind in (bool, int, float) and not self._is_word(raw):
            allowed = _SIZES if self.is_size else f"{_READERS[self.kind][1]}, without quotes"
            raise self._refusal(raw, source, allowed)
        return self.parse(raw, source=source)

    @property
    def is_size(self) -> bool:
        """A number of bytes, which may be written as 512MiB."""
        return self.kind is int and self.name.endswith("_bytes")

    def _is_word(self, raw: str) -> bool:
        """Text that a typed file may have where a number or a truth belongs."""
        is_absent = self.optional and raw.lower() in _ABSENT
        return is_absent or (self.is_size and _matched_size(raw) is not None)

    def arguments(self, value: Any) -> list[str]:
        """Command line words that `parse` reads back as `value`; none for the default."""
        if value == self.default:
            return []
        if self.kind is bool:
            return [self.flag if value else self.flag.replace("--", "--no-", 1)]
        text = "none" if value is None else str(getattr(value, "value", value))
        return [f"{self.flag}={text}"]

    def _converted(self, raw: object, source: str) -> Any:
        if self.optional and (raw is None or (isinstance(raw, str) and raw.lower() in _ABSENT)):
            return None
        read, allowed = _READERS.get(self.kind, (self._enum_member, ", ".join(self._members())))
        if self.is_size:
            read, allowed = _size, _SIZES
        try:
            return read(raw)
        except (ValueError, TypeError, OverflowError) as cause:
            raise self._refusal(raw, source, allowed) from cause

    def _enum_member(self, raw: object) -> Any:
        return self.kind(raw)

    def _members(self) -> list[str]:
        return [str(item.value) for item in self.kind] if issubclass(self.kind, enum.Enum) else []

    def _inside(self, value: float) -> bool:
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return low <= value <= high and math.isfinite(value)

    def _refusal(self, raw: object, source: str, allowed: str) -> ConfigError:
        return ConfigError(f"{source} is {raw!r}; allowed: {allowed}", param=self.name)


def _boolean(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in _TRUE | _FALSE:
        return raw.lower() in _TRUE
    raise ValueError(raw)


def _whole(raw: object) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise ValueError(raw)
    return int(raw)


def _real(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise ValueError(raw)
    return float(raw)


def _words(raw: object) -> str:
    if not isinstance(raw, str) or not raw:
        raise ValueError(raw)
    return raw


def _size(raw: object) -> int:
    matched = _matched_size(raw) if isinstance(raw, str) else None
    if matched is None:
        return _whole(raw)
    return int(matched[1]) * SIZE_UNITS[(matched[2] or "B").lower()]


def _matched_size(raw: str) -> re.Match[str] | None:
    return _SIZE.fullmatch(raw.strip(" \t"))


def size_in_bytes(raw: str, *, source: str) -> int:
    """A size such as "24GiB" or a number of bytes. Raises ConfigError naming `source`."""
    try:
        return _size(raw)
    except ValueError:
        raise ConfigError(f"{source} is {raw!r}; write a size such as 512MiB or 24GiB") from None


def _interval(low: float | None, high: float | None) -> str:
    if high is None:
        return f"{low} or more"
    return f"{low} to {high}" if low is not None else f"{high} or less"


_READERS: dict[type, tuple[Callable[[object], Any], str]] = {
    bool: (_boolean, "true or false"),
    int: (_whole, "a whole number"),
    float: (_real, "a number"),
    str: (_words, "some text"),
}


def check_ports_differ(ports: Mapping[str, int | None]) -> None:
    """Raises ConfigError for one port with two uses; `ports` by the names of their options, 0 and
    None for those that the system chooses or that are not wanted."""
    uses: dict[int, str] = {}
    for name, port in ports.items():
        if port and uses.setdefault(port, name) != name:
            flags = [f"--{use.replace('_', '-')}" for use in (uses[port], name)]
            raise ConfigError(
                f"{' and '.join(flags)} are both {port}; choose another for one of them",
                param=name,
            )
