"""What looks at a running fleet and changes nothing, by name and with kubectl's grammar. What a
command needs is imported when it runs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from cli.completion import worker_names
from cli.errors_shown import shows_errors
from cli.fleet_address import DEFAULT_ROUTER, GrpcAddress
from cli.output_form import ViewOutput, checked_view_form

Watch = Annotated[bool, typer.Option("--watch", "-w", help="again and again, until Ctrl-C")]
Interval = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="between two looks")]


class Listed(StrEnum):
    """What `get` lists."""

    WORKERS = "workers"
    POOLS = "pools"
    LEASES = "leases"
    REQUESTS = "requests"
    ROUTES = "routes"


class Stages(StrEnum):
    """Of requests in flight."""

    QUEUED = "queued"
    PREFILL = "prefill"
    TRANSFER = "transfer"
    DECODE = "decode"


class Described(StrEnum):
    """What `describe` tells all of."""

    WORKER = "worker"
    POOL = "pool"
    REQUEST = "request"


def described_names(context: typer.Context, incomplete: str) -> list[str]:
    """For a shell that completes."""
    if context.params.get("what") in (Described.WORKER, Described.WORKER.value):
        return worker_names(context, incomplete)
    return []


def add_inspection(app: typer.Typer) -> None:
    """Adds the commands to the whole command line."""
    app.command()(get)
    app.command()(describe)
    app.command()(blocks)


@shows_errors
def get(
    what: Annotated[Listed, typer.Argument(help="what to list")],
    grpc: GrpcAddress = DEFAULT_ROUTER,
    output: ViewOutput = "table",
    watch: Watch = False,
    interval: Interval = 2.0,
    tenant: Annotated[str, typer.Option(help="requests of one")] = "",
    stage: Annotated[Stages | None, typer.Option(help="requests in one")] = None,
    worker: Annotated[str, typer.Option(help="requests at one")] = "",
    older_than: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="requests that came before")
    ] = 0.0,
    newest: Annotated[bool, typer.Option("--newest", help="requests that came last first")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="of requests or routes")] = 100,
) -> None:
    """List workers, pools, leases, requests or routes."""
    from functools import partial

    from cli.inspect.blocks import leases_view
    from cli.inspect.pools import pools_view
    from cli.inspect.requests import asked_requests, requests_view
    from cli.inspect.transfers import transfers_view
    from cli.inspect.workers import workers_view
    from cli.question import Ask, Showing, ask_router

    asked = asked_requests(tenant=tenant, stage=stage, worker=worker, older_than_s=older_than)
    if what is not Listed.REQUESTS and (asked.ByteSize() or newest):
        raise typer.BadParameter("--tenant, --stage, --worker, --older-than, --newest: of requests")
    asked.newest_first, asked.limit = newest, limit
    views: dict[Listed, Ask] = {
        Listed.WORKERS: workers_view,
        Listed.POOLS: pools_view,
        Listed.LEASES: leases_view,
        Listed.REQUESTS: partial(requests_view, asked=asked),
        Listed.ROUTES: partial(transfers_view, limit=limit),
    }
    showing = Showing(checked_view_form(output), interval if watch else None)
    raise typer.Exit(ask_router(grpc, views[what], showing))


@shows_errors
def describe(
    what: Annotated[Described, typer.Argument(help="what kind of thing")],
    name: Annotated[str, typer.Argument(help="as `get` lists it", autocompletion=described_names)],
    grpc: GrpcAddress = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Tell all that the router knows of one worker, pool or request."""
    from cli.inspect.pools import pool_view
    from cli.inspect.requests import request_view
    from cli.inspect.workers import worker_view
    from cli.question import Showing, ask_router

    views = {
        Described.WORKER: worker_view,
        Described.POOL: pool_view,
        Described.REQUEST: request_view,
    }
    view, showing = views[what], Showing(checked_view_form(output))
    raise typer.Exit(ask_router(grpc, lambda router: view(router, name), showing))


@shows_errors
def blocks(
    worker: Annotated[str | None, typer.Argument(help="default: all")] = None,
    held: Annotated[bool, typer.Option("--held", help="only what somebody holds")] = False,
    grpc: GrpcAddress = DEFAULT_ROUTER,
    output: ViewOutput = "table",
    watch: Watch = False,
    interval: Interval = 2.0,
) -> None:
    """Show KV blocks by state: free, cached, in use, promised to readers, under way."""
    from cli.inspect.blocks import blocks_view
    from cli.question import Showing, ask_router

    showing = Showing(checked_view_form(output), interval if watch else None)
    raise typer.Exit(
        ask_router(grpc, lambda router: blocks_view(router, worker, held=held), showing)
    )
