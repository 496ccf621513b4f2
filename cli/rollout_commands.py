"""`splitserve rollout ...`: the commands by name. What they need is imported when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.fleet_address import Release
from cli.output_form import ViewOutput, checked_view_form

rollout_app = typer.Typer(
    help="Rolling updates of a release on Kubernetes.", no_args_is_help=True, rich_markup_mode=None
)
PoolName = Annotated[str | None, typer.Argument(help="default: all")]


@rollout_app.command("status")
@shows_errors
def status(release: Release, pool: PoolName = None, output: ViewOutput = "table") -> None:
    """Show how far pools are; 1: not done."""
    from cli.rollout import show_rollout

    raise typer.Exit(show_rollout(release, pool, output=checked_view_form(output)))


@rollout_app.command("pause")
@shows_errors
def pause(release: Release, pool: PoolName = None) -> None:
    """Leave pods as they are."""
    from cli.rollout import hold_rollout

    raise typer.Exit(hold_rollout(release, pool, is_paused=True))


@rollout_app.command("resume")
@shows_errors
def resume(release: Release, pool: PoolName = None) -> None:
    """Go on after a pause."""
    from cli.rollout import hold_rollout

    raise typer.Exit(hold_rollout(release, pool, is_paused=False))


@rollout_app.command("undo")
@shows_errors
def undo(release: Release, pool: PoolName = None) -> None:
    """Go back to the revision before."""
    from cli.rollout import undo_rollout

    raise typer.Exit(undo_rollout(release, pool))
