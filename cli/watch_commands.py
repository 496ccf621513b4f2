"""What looks at a running fleet as it goes on, by name. What a command needs is imported when it
runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.fleet_address import DEFAULT_ROUTER, GrpcAddress
from cli.output_form import ViewOutput, checked_view_form

_Interval = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="between two looks")]

watch_app = typer.Typer(rich_markup_mode=None)


@watch_app.command()
@shows_errors
def events(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", "--watch", "-w", help="what comes, until Ctrl-C")
    ] = False,
    interval: _Interval = 1.0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="the newest so many")] = 100,
    grpc: GrpcAddress = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Show what has happened to a fleet, and why."""
    from functools import partial

    from cli.inspect.events import events_view, follow_events
    from cli.question import Showing, ask_router

    form = checked_view_form(output)
    if follow and form == "yaml":
        raise typer.BadParameter("--follow prints lines: table, wide or json", param_hint="-o")
    if follow:
        raise typer.Exit(follow_events(grpc, form, interval, limit=limit))
    raise typer.Exit(ask_router(grpc, partial(events_view, limit=limit), Showing(form)))


@watch_app.command()
@shows_errors
def top(
    once: Annotated[bool, typer.Option("--once", help="one look, for scripts")] = False,
    interval: _Interval = 1.0,
    grpc: GrpcAddress = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Show a fleet live: pools, queues, KV, hit rate, transfer, latency by stage."""
    from cli.inspect.live import show_live
    from cli.inspect.top import top_view
    from cli.question import Showing, ask_router

    form = checked_view_form(output)
    if once:
        raise typer.Exit(ask_router(grpc, top_view, Showing(form)))
    if form not in ("table", "wide"):
        raise typer.BadParameter("a live view is a table; take --once", param_hint="-o")
    raise typer.Exit(show_live(grpc, interval))
