"""Where the time of requests and of workers went, by name. What a command needs is imported when it
runs.
"""

from __future__ import annotations

import re
from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.fleet_address import DEFAULT_ROUTER, GrpcAddress, GrpcAddresses
from cli.output_form import ViewOutput, checked_view_form

Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="how far back: 90s, 10m or 2h")
]
_KINDS = ("length", "hit", "pool", "worker", "tenant", "model", "route")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def add_times(app: typer.Typer) -> None:
    """Adds the commands to the whole command line."""
    app.command()(trace)
    app.command()(slow)
    app.command()(cost)


def kinds_completed(incomplete: str) -> list[str]:
    """For a shell: what may come after the last comma."""
    said, comma, last = incomplete.rpartition(",")
    left = [kind for kind in _KINDS if kind not in said.split(",")]
    return [said + comma + kind for kind in left if kind.startswith(last)]


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


@shows_errors
def slow(
    by: Annotated[
        str,
        typer.Option(
            metavar="KIND,KIND",
            help=f"what requests are told apart by: {', '.join(_KINDS)}",
            autocompletion=kinds_completed,
        ),
    ] = ",".join(_KINDS),
    since: Since = None,
    limit: Annotated[int, typer.Option(min=1, help="slices in a table")] = 20,
    grpc: GrpcAddresses = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Show where latency comes from: which requests make the tail, and what they waited for."""
    from functools import partial

    from cli.inspect.slow import recent_of, slow_view
    from cli.inspect.timed_requests import By
    from cli.several_routers import ask_routers

    seconds, form = checked_seconds(since), checked_view_form(output)
    kinds = [By(kind) for kind in checked_kinds(by)]
    ask, show = partial(recent_of, since_s=seconds), partial(slow_view, kinds=kinds, limit=limit)
    raise typer.Exit(ask_routers(grpc, ask, show, form=form))


@shows_errors
def cost(
    price: Annotated[
        str | None,
        typer.Option(
            metavar="POOL=NUMBER,...",
            help="of an hour of a worker: prefill=2.5,decode=2.5",
            show_default="SPLITSERVE_PRICE's, or the context's",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="tenants in a table")] = 20,
    grpc: GrpcAddresses = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Show whose the workers' time was, what was idle, and what a million tokens cost."""
    from functools import partial

    from cli.inspect.cost import cost_view, work_of
    from cli.inspect.prices import prices_of
    from cli.several_routers import ask_routers

    show = partial(cost_view, prices=prices_of(price), limit=limit)
    raise typer.Exit(ask_routers(grpc, work_of, show, form=checked_view_form(output)))


def checked_kinds(by: str) -> list[str]:
    """Raises typer.BadParameter."""
    kinds = list(dict.fromkeys(map(str.strip, by.split(","))))
    if unknown := [kind for kind in kinds if kind not in _KINDS]:
        raise typer.BadParameter(
            f"{unknown[0]!r}; allowed, with commas: {', '.join(_KINDS)}", param_hint="--by"
        )
    return kinds


def checked_seconds(since: str | None) -> float:
    """0: as far back as the router knows. Raises typer.BadParameter."""
    if since is None:
        return 0.0
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh])", since)
    if match is None or float(match[1]) == 0:
        raise typer.BadParameter(f"{since!r}; such as 90s, 10m or 2h", param_hint="--since")
    return float(match[1]) * _SECONDS[match[2]]
