"""Commands whose flags are the fields of an options dataclass: of the processes of a fleet, which
take them from variables and from a file, too. What one command alone is asked (`chat`, `quality`)
are its own parameters, of which typer makes the flags.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import typer

from cluster.errors import ConfigError
from cluster.option_value import OptionSpec
from cluster.options import CONFIG_VARIABLE, load_options, option_specs, resolve_options

Options = TypeVar("Options")

_CONFIG = inspect.Parameter(
    "config",
    inspect.Parameter.KEYWORD_ONLY,
    default=typer.Option(
        None, "--config", envvar=CONFIG_VARIABLE, metavar="FILE", help="TOML with options"
    ),
    annotation=Path | None,
)
EPILOG = "Every option is also a variable, --max-num-seqs SPLITSERVE_MAX_NUM_SEQS; flags win."


def with_flags_of(
    cls: type[Options], *, fixed: dict[str, object] | None = None
) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Makes a typer command of a function that takes one `cls`.

    `fixed` options are set by the command and get no flag. The command raises ConfigError for what
    `load_options` refuses.
    """

    def decorate(run: Callable[[Options], None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            config_file, flags = _words(given, None)
            run(load_options(cls, {**flags, **(fixed or {})}, config_file=config_file))

        return _shown_as(run, command, [*_flags(cls, fixed or {}), _CONFIG])

    return decorate


def with_options_of(
    cls: type, *, fixed: dict[str, object] | None = None, positional: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a typer command of a function that takes every option of `cls` as it is resolved, a
    `dict[str, ResolvedOption]`, and by keyword what else it names. `positional` may also be given
    as the only argument. Raises as `with_flags_of`."""

    def decorate(run: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(run, eval_str=True).parameters.values()

        def command(**given: Any) -> None:
            mine = {each.name: given.pop(each.name) for each in own}
            config_file, flags = _words(given, positional)
            found = resolve_options(cls, {**flags, **(fixed or {})}, config_file=config_file)
            of_command = {name: replace(found[name], source="command") for name in fixed or {}}
            run(found | of_command, **mine)

        others = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        first = [_argument(positional)] if positional else []
        return _shown_as(run, command, [*first, *_flags(cls, fixed or {}), _CONFIG, *others])

    return decorate


def _words(given: dict[str, Any], positional: str | None) -> tuple[Path | None, dict[str, object]]:
    """The file and the flags of a command line."""
    config_file = given.pop("config")
    argument = given.pop("argument", None)
    flags = {name: raw for name, raw in given.items() if raw is not None}
    if argument is not None and positional is not None:
        _refuse_both(positional, argument, flags)
        flags[positional] = argument
    return config_file, flags


def _flags(cls: type, fixed: dict[str, object]) -> list[inspect.Parameter]:
    return [_flag(spec) for name, spec in option_specs(cls).items() if name not in fixed]


def _shown_as(
    run: Callable[..., None], command: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    """`command`, to typer: with these parameters, and the name and text of `run`."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__name__, command.__doc__ = run.__name__, run.__doc__
    return command


def _flag(spec: OptionSpec) -> inspect.Parameter:
    """A flag without a value of its own: the environment or the default may still decide."""
    names = spec.flag
    if spec.kind is bool:
        names += "/" + spec.flag.replace("--", "--no-", 1)
    default = typer.Option(
        None,
        names,
        help=spec.help if spec.default is None else f"{spec.help} [{default_in_words(spec)}]",
        metavar=None if spec.kind is bool else _metavar(spec),
        show_default=False,
    )
    annotation = bool | None if spec.kind is bool else str | None
    return inspect.Parameter(
        spec.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _argument(name: str) -> inspect.Parameter:
    return inspect.Parameter(
        "argument",
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Argument(None, metavar=name.upper(), help=f"the same as --{name}"),
        annotation=str | None,
    )


def _metavar(spec: OptionSpec) -> str:
    return {int: "INT", float: "NUMBER"}.get(spec.kind, "TEXT")


def default_in_words(spec: OptionSpec) -> str:
    """Such as "on" or "8000"."""
    if spec.kind is bool:
        return "on" if spec.default else "off"
    return str(getattr(spec.default, "value", spec.default))


def _refuse_both(name: str, argument: str, flags: dict[str, Any]) -> None:
    if name in flags and flags[name] != argument:
        raise ConfigError(
            f"the {name} is given twice, as {argument!r} and as --{name} {flags[name]!r}; name one",
            param=name,
        )
