"""`splitserve keys ...`: the commands by name. What they need is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.output_form import Output, checked_form

keys_app = typer.Typer(
    help="API keys, for a router's --api-keys.", no_args_is_help=True, rich_markup_mode=None
)
KeysFile = Annotated[Path, typer.Option("--file", metavar="PATH", help="of the keys")]


@keys_app.command("create")
@shows_errors
def keys_create(
    tenant: Annotated[str, typer.Argument(help="whose it is")],
    file: KeysFile,
    model: Annotated[
        list[str] | None, typer.Option(help="that it is good for, once for each; default: all")
    ] = None,
    requests_per_minute: Annotated[
        float | None, typer.Option(min=0.001, help="at each router; default: no limit")
    ] = None,
) -> None:
    """Make a key, print it, and keep its digest in the file."""
    from cli.keys import create_key

    models = tuple(model or ())
    create_key(file, tenant, models=models, requests_per_minute=requests_per_minute)


@keys_app.command("list")
@shows_errors
def keys_list(file: KeysFile, output: Output = "table") -> None:
    """Show whose keys there are; the keys themselves are kept nowhere."""
    from cli.keys import list_keys

    list_keys(file, checked_form(output))


@keys_app.command("revoke")
@shows_errors
def keys_revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="as `keys list` shows it")],
    file: KeysFile,
) -> None:
    """Take a key out of the file; routers refuse it within about a second."""
    from cli.keys import revoke_key

    raise typer.Exit(revoke_key(file, key_id))
