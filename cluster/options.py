"""Command line, environment and file, made from the dataclasses of `cluster/config.py`.

    flag  >  SPLITSERVE_<FIELD>  >  --config FILE (TOML)  >  the field's default

Nested dataclasses are flattened: `EngineOptions.device` is `--device` wherever it is nested. A name
that occurs twice is one option and feeds both places.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import os
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cluster.config import RouterOptions, ServeOptions, WorkerOptions
from cluster.errors import ConfigError
from cluster.join_token import JOIN_TOKEN
from cluster.option_value import ENVIRONMENT_PREFIX, OptionSpec

CONFIG_VARIABLE = "SPLITSERVE_CONFIG"
"""Names the file, where --config does not."""

RUNTIME_VARIABLES = frozenset(
    {
        CONFIG_VARIABLE,
        "SPLITSERVE_CONTEXT",
        "SPLITSERVE_CONTEXTS",
        "SPLITSERVE_DEBUG",
        "SPLITSERVE_FLEET_TLS",
        "SPLITSERVE_GRPC",
        "SPLITSERVE_HOME",
        JOIN_TOKEN,
        "SPLITSERVE_LOG_LEVEL",
        "SPLITSERVE_PARENT_PID",
        "SPLITSERVE_PLACEMENT_GROUP",
        "SPLITSERVE_REPORT_FD",
    }
)
"""Variables that no dataclass declares: what a process is told about its surroundings."""

_PROCESSES = (RouterOptions, WorkerOptions, ServeOptions)
_SERVICE_LINK = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$")

Options = TypeVar("Options")


def option_specs(cls: type) -> dict[str, OptionSpec]:
    """Every option of a dataclass by name, nested ones included, in the order of the fields."""
    specs: dict[str, OptionSpec] = {}
    hints = typing.get_type_hints(cls)
    for item in dataclasses.fields(cls):
        kind: Any = hints[item.name]
        nested = isinstance(kind, type) and dataclasses.is_dataclass(kind)
        found = option_specs(kind) if nested else _spec_of(item, kind)
        for name, spec in found.items():
            assert specs.setdefault(name, spec) == spec, f"two options are named {name}"
    return specs


def load_options(
    cls: type[Options],
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> Options:
    """An instance from all sources. `flags` holds what was given on the command line, by name.

    Raises ConfigError for an unknown or wrong option in any source, with the nearest known name.
    The environment and the file may also hold options of the other processes: a fleet shares them.
    `splitserve serve` is the whole fleet: there is no other process that they could be for.
    """
    specs = option_specs(cls)
    found = list(_in_file(config_file)) if config_file is not None else []
    found += _in_environment(os.environ if environ is None else environ)
    if cls is ServeOptions:
        _refuse_what_is_one_workers(specs, found)
    values = {
        given.name: specs[given.name].parse(given.raw, source=given.source)
        for given in found
        if given.name in specs
    }
    for name, raw in (flags or {}).items():
        values[name] = specs[name].parse(raw, source=specs[name].flag)
    return build_options(cls, values)


def build_options(cls: type[Options], values: Mapping[str, Any]) -> Options:
    """An instance from checked values by name; what is absent takes its default."""
    hints = typing.get_type_hints(cls)
    given: dict[str, Any] = {}
    for item in dataclasses.fields(cls):  # type: ignore[arg-type]
        if dataclasses.is_dataclass(hints[item.name]):
            given[item.name] = build_options(hints[item.name], values)
        elif item.name in values:
            given[item.name] = values[item.name]
    return cls(**given)


def option_values(options: Any) -> dict[str, Any]:
    """The inverse of `build_options`: every value by name."""
    values: dict[str, Any] = {}
    for item in dataclasses.fields(options):
        value = getattr(options, item.name)
        values |= option_values(value) if dataclasses.is_dataclass(value) else {item.name: value}
    return values


def command_line(options: Any, *, leave_out: frozenset[str] = frozenset()) -> list[str]:
    """The words that give another process these options; defaults are not repeated."""
    specs = option_specs(type(options))
    words: list[str] = []
    for name, value in option_values(options).items():
        if name not in leave_out:
            words += specs[name].arguments(value)
    return words


def without_options(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment for a child that is given its options as words: none come by variable or by
    the file that a variable names."""
    kept = RUNTIME_VARIABLES - {CONFIG_VARIABLE}
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(ENVIRONMENT_PREFIX) or name in kept
    }


def _spec_of(item: dataclasses.Field[Any], hint: Any) -> dict[str, OptionSpec]:
    optional = isinstance(hint, types.UnionType)
    kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    kind = kinds[0] if optional else hint
    assert kind in (bool, int, float, str) or issubclass(kind, enum.Enum), item.name
    spec = OptionSpec(
        name=item.name, kind=kind, optional=optional, default=item.default, **item.metadata
    )
    return {item.name: spec}


def _known_specs() -> dict[str, OptionSpec]:
    return {name: spec for cls in _PROCESSES for name, spec in option_specs(cls).items()}


@dataclasses.dataclass(frozen=True, slots=True)
class _Given:
    """What the environment or a file says of some process's option."""

    name: str
    raw: object
    source: str
    """As an operator knows it: the variable, or the file and its key."""


def _refuse_what_is_one_workers(specs: Mapping[str, OptionSpec], found: list[_Given]) -> None:
    for given in found:
        if given.name not in specs:
            raise ConfigError(
                f"{given.source} is an option of one worker, and `splitserve serve` starts several "
                "and the router: leave it out, or start the processes by hand",
                param=given.name,
            )


def _in_environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    known = {spec.variable: name for name, spec in _known_specs().items()}
    for variable, raw in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in RUNTIME_VARIABLES:
            continue
        if _is_service_link(variable, raw):
            continue
        if variable not in known:
            hint = _nearest(variable, known.keys() | RUNTIME_VARIABLES)
            raise ConfigError(f"{variable} in the environment is not an option{hint}")
        yield _Given(known[variable], raw, variable)


def _is_service_link(variable: str, raw: str) -> bool:
    """Kubernetes adds these for a Service that is called splitserve; nobody meant them for us."""
    return _SERVICE_LINK.search(variable) is not None or raw.startswith(("tcp://", "udp://"))


def _in_file(path: Path) -> Iterator[_Given]:
    known = _known_specs()
    for name, raw in _read_toml(path).items():
        if name not in known:
            raise ConfigError(f"{path}: {name} is not an option{_nearest(name, known.keys())}")
        yield _Given(name, raw, f"{path}: {name}")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as cause:
        raise ConfigError(f"{path} cannot be read: {cause.strerror}; name a TOML file") from cause
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise ConfigError(
            f"{path} is not TOML: {cause}; write lines such as port = 8000"
        ) from cause


def _nearest(word: str, known: typing.Collection[str]) -> str:
    matches = difflib.get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {matches[0]}?" if matches else ""
