"""`splitserve adapters`. What a command needs is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.fleet_address import DEFAULT_ROUTER, GrpcAddress
from cli.output_form import ViewOutput, checked_view_form

adapters_app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="LoRA adapters of a running fleet."
)
_Name = Annotated[str, typer.Argument(help="that clients ask for as a model")]


@adapters_app.command("list")
@shows_errors
def list_command(grpc: GrpcAddress = DEFAULT_ROUTER, output: ViewOutput = "table") -> None:
    """Show which worker has which, and in which version."""
    from cli.adapters import list_adapters

    raise typer.Exit(list_adapters(grpc, checked_view_form(output)))


@adapters_app.command("load")
@shows_errors
def load_command(
    name: _Name,
    path: Annotated[str, typer.Argument(help="its folder, under the workers' --adapters")],
    grpc: GrpcAddress = DEFAULT_ROUTER,
) -> None:
    """Give a name to an adapter, at every worker; what had the name is let go."""
    from cli.adapters import load_adapter

    raise typer.Exit(load_adapter(grpc, name, path))


@adapters_app.command("unload")
@shows_errors
def unload_command(name: _Name, grpc: GrpcAddress = DEFAULT_ROUTER) -> None:
    """Have no worker take requests for it; those that run end with it."""
    from cli.adapters import unload_adapter

    raise typer.Exit(unload_adapter(grpc, name))
