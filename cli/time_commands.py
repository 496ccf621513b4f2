"""Where the time of requests went, by name. What a command needs is imported when it runs."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.fleet_address import DEFAULT_ROUTER, GrpcAddress
from cli.output_form import ViewOutput, checked_view_form

Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="how far back: 90s, 10m or 2h")
]
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def add_times(app: typer.Typer) -> None:
    """Adds the commands to the whole command line."""
    app.command()(trace)


@shows_errors
def trace(
    request_id: Annotated[str | None, typer.Argument(help="the X-Request-Id of its answer")] = None,
    slowest: Annotated[
        int | None, typer.Option(min=1, max=100, help="so many with the latest first token")
    ] = None,
    since: Since = None,
    grpc: GrpcAddress = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Show where the time of a request went, or of the slowest."""
    from cli.inspect.traces import slowest_view, trace_view
    from cli.question import Showing, ask_router

    if (request_id is None) == (slowest is None):
        raise typer.BadParameter("name a request, or ask for --slowest N")
    seconds = checked_seconds(since)
    showing = Showing(checked_view_form(output))
    if request_id is not None:
        raise typer.Exit(ask_router(grpc, lambda router: trace_view(router, request_id), showing))
    count = slowest or 1
    raise typer.Exit(ask_router(grpc, lambda router: slowest_view(router, count, seconds), showing))


def checked_seconds(since: str | None) -> float:
    """0: as far back as the router knows. Raises typer.BadParameter."""
    if since is None:
        return 0.0
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh])", since)
    if match is None or float(match[1]) == 0:
        raise typer.BadParameter(f"{since!r}; such as 90s, 10m or 2h", param_hint="--since")
    return float(match[1]) * _SECONDS[match[2]]
