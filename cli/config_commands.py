"""`splitserve config ...`: the commands by name. What they need is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.config.roles import OPTIONS_OF, ProcessKind
from cli.errors_shown import shows_errors
from cli.fleet_address import DEFAULT_ROUTER, GrpcAddress
from cli.fleet_options import context_names
from cli.option_flags import EPILOG, with_options_of
from cli.output_form import ViewOutput, checked_view_form
from cluster.identity import Role
from cluster.options import CONFIG_VARIABLE, ResolvedOption

config_app = typer.Typer(
    help="Options as they are resolved, and contexts: named fleets.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
show_app = typer.Typer(
    help="Every option of a process as it is resolved: its value, and who has said it.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
config_app.add_typer(show_app, name="show")
FIXED: dict[ProcessKind, dict[str, object]] = {
    ProcessKind.PREFILL_WORKER: {"role": Role.PREFILL},
    ProcessKind.DECODE_WORKER: {"role": Role.DECODE},
}
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar=CONFIG_VARIABLE, metavar="FILE", help="TOML with options"),
]
ContextName = Annotated[
    str, typer.Argument(metavar="NAME", help="of a context", autocompletion=context_names)
]
NewContext = Annotated[str, typer.Argument(metavar="NAME", help="known or new")]
AnyContext = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="as if it were given to another command"),
]
NotSaid = Annotated[str | None, typer.Option(metavar="HOST:PORT,...", help="gRPC of its routers")]


@show_app.callback()
@shows_errors
def show_all(
    context: typer.Context, config: ConfigFile = None, output: ViewOutput = "table"
) -> None:
    """Every option of a process as it is resolved: its value, and who has said it. Without a
    process: of each that may be started here, by the environment and the file."""
    from cli.config.shown import all_options_view

    if context.invoked_subcommand is None:
        all_options_view(config, FIXED).print(checked_view_form(output))


def _add_show(kind: ProcessKind) -> None:
    """`config show KIND`, with all flags that `splitserve KIND` has."""

    @with_options_of(OPTIONS_OF[kind], fixed=FIXED.get(kind))
    def show(resolved: dict[str, ResolvedOption], output: ViewOutput = "table") -> None:
        from cli.config.shown import options_view

        options_view(resolved).print(checked_view_form(output))

    show.__doc__ = f"Of `splitserve {kind}`, with the same flags."
    show_app.command(kind.value, epilog=EPILOG)(shows_errors(show))


for each_kind in ProcessKind:
    _add_show(each_kind)


@config_app.command()
@shows_errors
def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="TOML with options")],
    process: Annotated[
        ProcessKind | None, typer.Option(help="that is started with them; default: any")
    ] = None,
    output: ViewOutput = "table",
) -> None:
    """Look for what would be refused in files of options; 1: something."""
    from cli.config.validated import validate as validate_files

    raise typer.Exit(validate_files(files, process, checked_view_form(output)))


@config_app.command()
@shows_errors
def diff(
    file: Annotated[Path, typer.Argument(help="TOML with options")],
    other: Annotated[
        Path | None, typer.Argument(help="another one; default: the running router's options")
    ] = None,
    grpc: GrpcAddress = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Show in what two files differ, or a file and the running router; 1: in something."""
    from cli.config.differences import options_in, options_of_router, show_difference
    from cli.question import complained
    from cluster.errors import ConfigError, SplitserveError

    form, left = checked_view_form(output), options_in(file)
    try:
        right = options_in(other) if other is not None else options_of_router(grpc)
    except ConfigError:
        raise
    except SplitserveError as failure:
        raise typer.Exit(complained(failure, grpc)) from None
    raise typer.Exit(show_difference(left, right, form))


@config_app.command()
@shows_errors
def schema(
    process: Annotated[
        ProcessKind | None, typer.Argument(help="that is started with it; default: any")
    ] = None,
) -> None:
    """Print the JSON Schema of a file of options."""
    from cli.config.schema import config_schema
    from cli.json_output import print_json

    print_json(config_schema(process))


@config_app.command("get-contexts")
@shows_errors
def get_contexts(output: ViewOutput = "table") -> None:
    """List the fleets that have names here."""
    from cli.config.contexts import contexts_view

    contexts_view().print(checked_view_form(output))


@config_app.command("current-context")
@shows_errors
def current_context(context: AnyContext = None, output: ViewOutput = "table") -> None:
    """Show what commands go by now, and where each word of it comes from."""
    from cli.config.contexts import current_view

    current_view(context).print(checked_view_form(output))


@config_app.command("use-context")
@shows_errors
def use_context(name: ContextName) -> None:
    """Make a context the current one; `none`: no context."""
    from cli.config.contexts import use_context

    use_context(name)


@config_app.command("set-context")
@shows_errors
def set_context(
    name: NewContext,
    router: NotSaid = None,
    kubernetes: Annotated[
        str | None, typer.Option(metavar="NAMESPACE/RELEASE", help="of the chart")
    ] = None,
    join_token_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="with the fleet's join token")
    ] = None,
    fleet_tls: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="with cert.pem, key.pem and ca.pem")
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(metavar="POOL=NUMBER,...", help="of an hour of a worker, for `cost`"),
    ] = None,
) -> None:
    """Name a fleet, or change what its name stands for; `none` takes a word back."""
    from cli.config.contexts import change_context

    change_context(
        name,
        {
            "router": router,
            "release": kubernetes,
            "join_token_file": join_token_file,
            "fleet_tls": fleet_tls,
            "price": price,
        },
    )


@config_app.command("delete-context")
@shows_errors
def delete_context(name: ContextName) -> None:
    """Forget a name; the fleet itself is not touched."""
    from cli.config.contexts import delete_context

    delete_context(name)
