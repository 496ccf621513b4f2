"""`splitserve config ...`: the commands by name. What they need is imported when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.fleet_options import context_names
from cli.output_form import ViewOutput, checked_view_form

config_app = typer.Typer(
    help="Options as they are resolved, and contexts: named fleets.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
ContextName = Annotated[
    str, typer.Argument(metavar="NAME", help="of a context", autocompletion=context_names)
]
NewContext = Annotated[str, typer.Argument(metavar="NAME", help="known or new")]
AnyContext = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="as if it were given to another command"),
]
NotSaid = Annotated[str | None, typer.Option(metavar="HOST:PORT,...", help="gRPC of its routers")]


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
        },
    )


@config_app.command("delete-context")
@shows_errors
def delete_context(name: ContextName) -> None:
    """Forget a name; the fleet itself is not touched."""
    from cli.config.contexts import delete_context

    delete_context(name)
