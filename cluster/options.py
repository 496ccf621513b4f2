"""Command line, environment and file, made from the dataclasses of `cluster/config.py`.

    flag  >  SPLITSERVE_<FIELD>  >  --config FILE (TOML)  >  the field's default

Nested dataclasses are flattened: `EngineOptions.device` is `--device` wherever it is nested. A name
that occurs twice is one option and feeds both places.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cluster.config import RouterOptions, ServeOptions, WorkerOptions
from cluster.errors import ConfigError
from cluster.join_token import JOIN_TOKEN, JOIN_TOKEN_TOO
from cluster.option_sources import GivenOption, Origin, in_environment, in_file
from cluster.option_value import ENVIRONMENT_PREFIX, OptionSpec
from cluster.planner_options import PlannerOptions

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
        "SPLITSERVE_HOME_LIMIT_BYTES",
        JOIN_TOKEN,
        JOIN_TOKEN_TOO,
        "SPLITSERVE_LOG_LEVEL",
        "SPLITSERVE_PARENT_PID",
        "SPLITSERVE_PLACEMENT_GROUP",
        "SPLITSERVE_REPORT_FD",
    }
)
"""Variables that no dataclass declares: what a process is told about its surroundings."""

_PROCESSES = (PlannerOptions, RouterOptions, WorkerOptions, ServeOptions)

Options = TypeVar("Options")


@functools.cache
def option_specs(cls: type) -> Mapping[str, OptionSpec]:
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


@dataclasses.dataclass(frozen=True, slots=True)
class ResolvedOption:
    """A checked value, and who has said it."""

    spec: OptionSpec
    value: Any
    origin: Origin
    source: str
    """As an operator knows it: the flag, the variable, the file with line and key, or "default"."""


def load_options(
    cls: type[Options],
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> Options:
    """An instance from all sources; see `resolve_options`, which raises ConfigError."""
    found = resolve_options(cls, flags, environ=environ, config_file=config_file)
    return build_options(cls, {name: each.value for name, each in found.items()})


def resolve_options(
    cls: type,
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> dict[str, ResolvedOption]:
    """Every option by name. `flags` holds what was given on the command line, by name.

    Raises ConfigError for an unknown or wrong option in any source, with the nearest known name.
    The environment and the file may also hold options of the other processes: a fleet shares them.
    `splitserve serve` is the whole fleet: there is no other process that they could be for.
    """
    specs = option_specs(cls)
    found = list(read_file(config_file).values()) if config_file is not None else []
    surroundings = os.environ if environ is None else environ
    found += in_environment(surroundings, known_specs(), RUNTIME_VARIABLES)
    if cls is ServeOptions:
        _refuse_what_is_one_workers(specs, found)
    found += [
        GivenOption(name=name, raw=raw, origin=Origin.FLAG, source=specs[name].flag)
        for name, raw in (flags or {}).items()
    ]
    resolved = {
        name: ResolvedOption(spec, spec.default, Origin.DEFAULT, "default")
        for name, spec in specs.items()
    }
    for given in found:
        if (spec := specs.get(given.name)) is not None:
            value = given.parsed(spec)
            resolved[given.name] = ResolvedOption(spec, value, given.origin, given.source)
    return resolved


def read_file(path: Path) -> dict[str, GivenOption]:
    """What a file says of any process's options, by name. Raises ConfigError."""
    found = list(in_file(path, known_specs()))
    for given in found:
        if isinstance(given, ConfigError):
            raise given
    return {given.name: given for given in found if isinstance(given, GivenOption)}


def file_problems(path: Path, classes: Collection[type]) -> list[ConfigError]:
    """All that these processes would refuse of a file, and what none of a fleet's knows."""
    problems: list[ConfigError] = []
    values: dict[type, dict[str, Any]] = {cls: {} for cls in classes}
    for given in in_file(path, known_specs()):
        if isinstance(given, ConfigError):
            problems.append(given)
            continue
        for cls in classes:
            try:
                _take(cls, given, values[cls])
            except ConfigError as problem:
                problems.append(problem)
    if problems:
        return _without_repetition(problems)
    for cls in classes:
        try:
            build_options(cls, values[cls])
        except ConfigError as problem:
            problems.append(ConfigError(f"{path}: {problem.message}", param=problem.param))
    return _without_repetition(problems)


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
    cls: type = type(options)
    specs = option_specs(cls)
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


@functools.cache
def known_specs() -> Mapping[str, OptionSpec]:
    """Of all processes of a fleet."""
    return {name: spec for cls in _PROCESSES for name, spec in option_specs(cls).items()}


def _take(cls: type, given: GivenOption, values: dict[str, Any]) -> None:
    spec = option_specs(cls).get(given.name)
    if spec is not None:
        values[given.name] = given.parsed(spec)


def _without_repetition(problems: list[ConfigError]) -> list[ConfigError]:
    """Of options that several processes have."""
    return list({problem.message: problem for problem in problems}.values())


def _refuse_what_is_one_workers(specs: Mapping[str, OptionSpec], found: list[GivenOption]) -> None:
    for given in found:
        if given.name not in specs:
            raise ConfigError(
                f"{given.source} is an option of one worker, and `splitserve serve` starts several "
                "and the router: leave it out, or start the processes by hand",
                param=given.name,
            )
