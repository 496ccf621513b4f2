"""`splitserve keys ...`: the commands by name. What they need is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.output_form import Output, checked_form
from cluster.common_options import NAMESPACE

keys_app = typer.Typer(
    help="API keys, for a router's --api-keys.", no_args_is_help=True, rich_markup_mode=None
)
PerMinute = Annotated[
    float | None, typer.Option(min=0.001, help="at each router; default: no limit")
]
KeysFile = Annotated[
    Path | None, typer.Option("--file", metavar="PATH", help="of the keys; default: --store")
]
KeysStore = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", envvar="SPLITSERVE_STORE", help="of routers: redis://HOST"
    ),
]
Namespace = Annotated[
    str,
    typer.Option("--store-namespace", envvar="SPLITSERVE_STORE_NAMESPACE", help="as routers'"),
]


@keys_app.command("create")
@shows_errors
def keys_create(
    tenant: Annotated[str, typer.Argument(help="whose it is")],
    file: KeysFile = None,
    store: KeysStore = None,
    store_namespace: Namespace = NAMESPACE,
    model: Annotated[
        list[str] | None, typer.Option(help="that it is good for, once for each; default: all")
    ] = None,
    requests_per_minute: PerMinute = None,
    input_tokens_per_minute: PerMinute = None,
    output_tokens_per_minute: PerMinute = None,
    budget_tokens: Annotated[
        float | None,
        typer.Option(min=1, help="of prompts and answers in each period; default: no limit"),
    ] = None,
    budget_period_h: Annotated[
        float, typer.Option(min=0.001, help="hours; the first request begins a period")
    ] = 24.0,
    weight: Annotated[
        float, typer.Option(min=0.001, help="of the tenant's share among those of its class")
    ] = 1.0,
    priority: Annotated[
        str, typer.Option(help="its class: interactive, standard or batch")
    ] = "standard",
) -> None:
    """Make a key, print it, and keep its digest."""
    from cli.key_place import key_place
    from cli.keys import create_key, terms_of

    terms = terms_of(
        priority,
        models=tuple(model or ()),
        requests_per_minute=requests_per_minute,
        input_tokens_per_minute=input_tokens_per_minute,
        output_tokens_per_minute=output_tokens_per_minute,
        budget_tokens=budget_tokens,
        budget_period_s=budget_period_h * 3600,
        weight=weight,
    )
    create_key(key_place(file, store, store_namespace), tenant, terms)


@keys_app.command("list")
@shows_errors
def keys_list(
    file: KeysFile = None,
    store: KeysStore = None,
    store_namespace: Namespace = NAMESPACE,
    output: Output = "table",
) -> None:
    """Show whose keys there are; the keys themselves are kept nowhere."""
    from cli.key_place import key_place
    from cli.keys import list_keys

    list_keys(key_place(file, store, store_namespace), checked_form(output))


@keys_app.command("revoke")
@shows_errors
def keys_revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="as `keys list` shows it")],
    file: KeysFile = None,
    store: KeysStore = None,
    store_namespace: Namespace = NAMESPACE,
) -> None:
    """Take a key out; routers refuse it within about a second."""
    from cli.key_place import key_place
    from cli.keys import revoke_key

    raise typer.Exit(revoke_key(key_place(file, store, store_namespace), key_id))
