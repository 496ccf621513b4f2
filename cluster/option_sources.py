"""Where an option may be said beside a command line: the environment, and a file.

Both may be shared by the processes of a fleet: each takes what is its own. What no process knows is
an error, with the nearest name that one does.
"""

from __future__ import annotations

import difflib
import enum
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError
from cluster.option_value import ENVIRONMENT_PREFIX, OptionSpec

_SERVICE_LINK = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$")


class Origin(enum.StrEnum):
    """From the weakest to the strongest."""

    DEFAULT = "default"
    FILE = "file"
    VARIABLE = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenOption:
    """What one source says of an option of some process; not checked yet."""

    name: str
    raw: object
    origin: Origin
    source: str
    """As an operator knows it: the flag, the variable, or the file with line and key."""

    def parsed(self, spec: OptionSpec) -> Any:
        """Raises ConfigError, which names the source."""
        if self.origin is Origin.FILE:
            return spec.parse_typed(self.raw, source=self.source)
        return spec.parse(self.raw, source=self.source)


def in_environment(
    environ: Mapping[str, str], known: Mapping[str, OptionSpec], passed_over: Collection[str]
) -> Iterator[GivenOption]:
    """`passed_over`: variables that are no options. Raises ConfigError."""
    names = {spec.variable: name for name, spec in known.items()}
    for variable, raw in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in passed_over:
            continue
        if _is_service_link(variable, raw):
            continue
        if variable not in names:
            hint = _nearest(variable, {*names, *passed_over})
            raise ConfigError(f"{variable} in the environment is not an option{hint}")
        yield GivenOption(name=names[variable], raw=raw, origin=Origin.VARIABLE, source=variable)


def in_file(path: Path, known: Mapping[str, OptionSpec]) -> Iterator[GivenOption | ConfigError]:
    """An error in the place of a key that is no option. Raises ConfigError for what is no TOML."""
    text = _text_of(path)
    for name, raw in _toml_of(path, text).items():
        source = f"{path}:{_line_of(name, text)}: {name}"
        if name in known:
            yield GivenOption(name=name, raw=raw, origin=Origin.FILE, source=source)
        else:
            hint = _nearest(name, known.keys()) or "; docs/options.md has those that there are"
            yield ConfigError(f"{source} is not an option{hint}", param=name)


def _is_service_link(variable: str, raw: str) -> bool:
    """Kubernetes adds these for a Service that is called splitserve; nobody meant them for us."""
    return _SERVICE_LINK.search(variable) is not None or raw.startswith(("tcp://", "udp://"))


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as cause:
        raise ConfigError(f"{path} cannot be read: {cause.strerror}; name a TOML file") from cause
    except UnicodeDecodeError as cause:
        raise _no_toml(path, cause) from cause


def _toml_of(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as cause:  # also of a number with 5000 digits
        raise _no_toml(path, cause) from cause


def _no_toml(path: Path, cause: Exception) -> ConfigError:
    return ConfigError(f"{path} is not TOML: {cause}; write lines such as port = 8000")


def _line_of(name: str, text: str) -> int:
    """Of a key, or of the head of a table: the first line that looks like it and is preceded by a
    whole document without it."""
    lines = text.split("\n")
    bare, quoted = re.escape(name), re.escape(f'"{name}"')
    looks = re.compile(rf"\s*\[*\s*(?:{bare}|{quoted}|'{bare}')\s*[=.\]]")
    candidates = [index for index, line in enumerate(lines) if looks.match(line)]
    first = next((i for i in candidates if _is_before(name, lines[:i])), 0)
    return first + 1


def _is_before(name: str, lines: list[str]) -> bool:
    try:
        return name not in tomllib.loads("\n".join(lines))
    except ValueError:
        return False


def _nearest(word: str, known: Collection[str]) -> str:
    matches = difflib.get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {matches[0]}?" if matches else ""
