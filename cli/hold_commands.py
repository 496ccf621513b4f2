"""What keeps requests from one worker and lets them come again, by name. What a command needs is
imported when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.fleet_address import DEFAULT_ROUTER, GrpcAddresses
from cli.output_form import ViewOutput, checked_view_form

_Worker = Annotated[str, typer.Argument(help="as `get workers` lists it")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="say what it would do")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]
_Force = Annotated[bool, typer.Option("--force", help="also the last one that decodes")]

hold_app = typer.Typer(rich_markup_mode=None)


@hold_app.command()
@shows_errors
def drain(
    worker: _Worker,
    wait: Annotated[bool, typer.Option("--wait", help="until nobody has anything there")] = False,
    deadline: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="of --wait")] = 600.0,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    force: _Force = False,
    hand_on: Annotated[
        bool, typer.Option(help="have others take over what it has cached, at once")
    ] = True,
    grpc: GrpcAddresses = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Have a worker's streams go on elsewhere, and no new request come; 4: refused."""
    from cli.hold import HoldRequest, run_hold
    from cluster.membership.hold import HoldKind

    request = HoldRequest(
        worker_id=worker,
        kind=HoldKind.DRAIN,
        is_dry_run=dry_run,
        is_agreed=yes,
        is_forced=force,
        hands_on=hand_on,
        wait_s=deadline if wait else None,
        form=checked_view_form(output),
    )
    raise typer.Exit(run_hold(grpc, request))


@hold_app.command()
@shows_errors
def cordon(
    worker: _Worker,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    force: _Force = False,
    grpc: GrpcAddresses = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Keep new requests from a worker; what it has goes on there; 4: refused."""
    from cli.hold import HoldRequest, run_hold
    from cluster.membership.hold import HoldKind

    request = HoldRequest(
        worker_id=worker,
        kind=HoldKind.CORDON,
        is_dry_run=dry_run,
        is_agreed=yes,
        is_forced=force,
        form=checked_view_form(output),
    )
    raise typer.Exit(run_hold(grpc, request))


@hold_app.command()
@shows_errors
def uncordon(
    worker: _Worker,
    dry_run: _DryRun = False,
    grpc: GrpcAddresses = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Let requests come again to a worker that was cordoned or drained."""
    from cli.hold import HoldRequest, run_hold
    from cluster.membership.hold import HoldKind

    request = HoldRequest(
        worker_id=worker,
        kind=HoldKind.NONE,
        is_dry_run=dry_run,
        is_agreed=True,
        form=checked_view_form(output),
    )
    raise typer.Exit(run_hold(grpc, request))
