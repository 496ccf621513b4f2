"""The commands that change a fleet, by name. What they need is imported when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.fleet_address import DEFAULT_ROUTER, GrpcAddress, MaybeRelease
from cli.output_form import ViewOutput, checked_view_form

scale_app = typer.Typer(rich_markup_mode=None)
_USUAL = "default: what a release gives a start, elsewhere 600"


@scale_app.command()
@shows_errors
def scale(
    sizes: Annotated[list[str], typer.Argument(metavar="POOL=N...", help="as prefill=4 decode=6")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what it would do")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="until all are ready")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    deadline: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help=f"of --wait; {_USUAL}")
    ] = None,
    allow_pending: Annotated[
        bool,
        typer.Option("--allow-pending", help="on Kubernetes: also where no node has the GPUs yet"),
    ] = False,
    grpc: GrpcAddress = DEFAULT_ROUTER,
    kubernetes: MaybeRelease = None,
    output: ViewOutput = "table",
) -> None:
    """Change how many workers pools have; 4: refused."""
    from cli.scale import ScaleRequest, run_scale, scale_release, sizes_of

    request = ScaleRequest(
        sizes=sizes_of(sizes),
        is_dry_run=dry_run,
        waits=wait,
        is_agreed=yes,
        deadline_s=deadline,
        output=checked_view_form(output),
        may_wait=allow_pending,
    )
    if allow_pending and kubernetes is None:
        raise typer.BadParameter(
            "is of releases on Kubernetes, whose pods may wait", param_hint="--allow-pending"
        )
    if kubernetes is not None:
        raise typer.Exit(scale_release(kubernetes, request, grpc))
    raise typer.Exit(run_scale(grpc, request))


@scale_app.command()
@shows_errors
def flip(
    worker: Annotated[str, typer.Argument(help="as `get workers` lists it")],
    place: Annotated[str, typer.Argument(metavar="ROLE|POOL", help="of the worker in its place")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what it would do")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="until the old worker is gone")] = False,
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="the old one goes first")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    deadline: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help=f"of it all; {_USUAL}")
    ] = None,
    grpc: GrpcAddress = DEFAULT_ROUTER,
    kubernetes: MaybeRelease = None,
    output: ViewOutput = "table",
) -> None:
    """Give a worker's place, and what it has cached, to one of the other role; 4: refused."""
    from cli.flip import flip_in_release, run_flip
    from cli.flip_plan import FlipRequest

    request = FlipRequest(
        worker_id=worker,
        place=place,
        goes_first=one_by_one,
        is_dry_run=dry_run,
        waits=wait,
        is_agreed=yes,
        deadline_s=deadline,
        output=checked_view_form(output),
    )
    if kubernetes is not None:
        raise typer.Exit(flip_in_release(kubernetes, request))
    raise typer.Exit(run_flip(grpc, request))
