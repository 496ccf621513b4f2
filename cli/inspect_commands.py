"""What looks at a running fleet and changes nothing, by name and with kubectl's grammar. What a
command needs is imported when it runs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from cli.completion import worker_names
from cli.errors_shown import shows_errors
from cli.fleet_address import (
    DEFAULT_ROUTER,
    GrpcAddress,
    GrpcAddresses,
    first_that_listens,
    routers_of,
)
from cli.output_form import ViewOutput, checked_view_form

Watch = Annotated[bool, typer.Option("--watch", "-w", help="again and again, until Ctrl-C")]
Interval = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="between two looks")]


class Listed(StrEnum):
    """What `get` lists."""

    WORKERS = "workers"
    POOLS = "pools"
    LEASES = "leases"
    REQUESTS = "requests"
    LINKS = "links"


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


_LIMITED = (Listed.REQUESTS, Listed.LINKS)
_USUAL_LIMIT = 100


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
    limit: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="of requests or links", show_default=str(_USUAL_LIMIT)),
    ] = None,
) -> None:
    """List workers, pools, leases, requests or links."""
    from functools import partial

    from cli.inspect.blocks import leases_view
    from cli.inspect.links import links_view
    from cli.inspect.pools import pools_view
    from cli.inspect.requests import asked_requests, requests_view
    from cli.inspect.workers import workers_view
    from cli.question import Ask, Showing, ask_router

    asked = asked_requests(tenant=tenant, stage=stage, worker=worker, older_than_s=older_than)
    if what is not Listed.REQUESTS and (asked.ByteSize() or newest):
        raise typer.BadParameter("--tenant, --stage, --worker, --older-than, --newest: of requests")
    if limit is not None and what not in _LIMITED:
        raise typer.BadParameter(f"--limit: of requests or links; {what} are all listed")
    asked.newest_first, asked.limit = newest, limit or _USUAL_LIMIT
    views: dict[Listed, Ask] = {
        Listed.WORKERS: workers_view,
        Listed.POOLS: pools_view,
        Listed.LEASES: leases_view,
        Listed.REQUESTS: partial(requests_view, asked=asked),
        Listed.LINKS: partial(links_view, limit=asked.limit),
    }
    showing = Showing(checked_view_form(output), interval if watch else None)
    raise typer.Exit(ask_router(grpc, views[what], showing))


@shows_errors
def describe(
    what: Annotated[Described, typer.Argument(help="what kind of thing")],
    name: Annotated[str, typer.Argument(help="as `get` lists it", autocompletion=described_names)],
    grpc: GrpcAddresses = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Tell all that is known of one worker, pool or request; of several routers each is asked for a
    request."""
    from cli.inspect.pools import pool_view
    from cli.inspect.requests import request_view
    from cli.inspect.workers import worker_view
    from cli.question import Showing, ask_router, ask_until_found

    showing, routers = Showing(checked_view_form(output)), routers_of(grpc)
    if what is Described.REQUEST:
        code = ask_until_found(routers, lambda router: request_view(router, name), showing)
        raise typer.Exit(code)
    view = worker_view if what is Described.WORKER else pool_view
    at = first_that_listens(routers)
    raise typer.Exit(ask_router(at, lambda router: view(router, name), showing))


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
