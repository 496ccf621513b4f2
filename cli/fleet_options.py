"""`--context` for every command that asks a fleet: those with --grpc or --kubernetes; and workers'
names for shells that complete their argument `worker`.

It is added here, once, so that no command can be without it; the command itself gets the address
or release that was resolved, and runs with the fleet's token and certificates.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.models import ArgumentInfo, CommandInfo

from cli.completion import worker_names
from cli.errors_shown import shows_errors
from cli.fleet_address import (
    RELEASE_OPTION,
    ROUTER_OPTION,
    ROUTERS_OPTION,
    NamedFleet,
    resolve_fleet,
)

AnyCommand = Callable[..., Any]


def context_names(incomplete: str) -> list[str]:
    """For a shell that completes; none where the file cannot be read."""
    from cli.context_file import contexts_path, read_contexts
    from cluster.errors import ConfigError

    try:
        return [
            name for name in read_contexts(contexts_path()).contexts if name.startswith(incomplete)
        ]
    except ConfigError:
        return []


_CONTEXT = inspect.Parameter(
    "context",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="a fleet of `splitserve config get-contexts`; none: no context",
            show_default="the current one",
            autocompletion=context_names,
        ),
    ],
)


def offer_contexts(app: typer.Typer) -> None:
    """To be called once all commands are there."""
    for command in _commands(app):
        if command.callback is not None and (named := _fleet_parameters(command.callback)):
            command.callback = shows_errors(_resolving(command.callback, named))


def _commands(app: typer.Typer) -> Iterator[CommandInfo]:
    yield from app.registered_commands
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance)


def _fleet_parameters(command: AnyCommand) -> dict[str, Any]:
    """Its parameters that say where a fleet is, with the option that each is."""
    options = (ROUTER_OPTION, ROUTERS_OPTION, RELEASE_OPTION)
    return {
        parameter.name: option
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if get_origin(parameter.annotation) is Annotated
        for option in get_args(parameter.annotation)[1:]
        if any(option is known for known in options)
    }


def _resolving(command: AnyCommand, named: dict[str, Any]) -> AnyCommand:
    @functools.wraps(command)
    def resolving(*, context: str | None = None, **given: Any) -> Any:
        by_option = {id(option): given.get(name) for name, option in named.items()}
        fleet = resolve_fleet(
            grpc=by_option.get(id(ROUTER_OPTION)) or by_option.get(id(ROUTERS_OPTION)),
            kubernetes=by_option.get(id(RELEASE_OPTION)),
            context=context,
        )
        with fleet.let_in():
            return command(**given | _resolved(fleet, named))

    signature = inspect.signature(command, eval_str=True)
    parameters = [_optional(_completed(each), named) for each in signature.parameters.values()]
    resolving.__signature__ = signature.replace(parameters=[*parameters, _CONTEXT])  # type: ignore[attr-defined]
    return resolving


def _completed(parameter: inspect.Parameter) -> inspect.Parameter:
    for info in get_args(parameter.annotation)[1:]:
        if isinstance(info, ArgumentInfo) and parameter.name == "worker":
            info.autocompletion = worker_names
    return parameter


def _optional(parameter: inspect.Parameter, named: dict[str, Any]) -> inspect.Parameter:
    """None where no flag says it."""
    if parameter.name not in named:
        return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, default=None)


def _resolved(fleet: NamedFleet, named: dict[str, Any]) -> dict[str, str | None]:
    """What the command is given. Raises typer.BadParameter, ConfigError."""
    is_release = any(option is RELEASE_OPTION for option in named.values())
    goes_by_release = is_release and fleet.release.value is not None
    words: dict[str, str | None] = {}
    for name, option in named.items():
        if option is RELEASE_OPTION:
            words[name] = fleet.release.value
        elif goes_by_release:
            words[name] = fleet.router.value or ""
        else:
            words[name] = fleet.one_router() if option is ROUTER_OPTION else fleet.all_routers()
    if is_release and len(named) == 1 and not goes_by_release:
        raise typer.BadParameter(
            "no release is named: give [NAMESPACE/]RELEASE, or a context that has one",
            param_hint="--kubernetes",
        )
    return words
