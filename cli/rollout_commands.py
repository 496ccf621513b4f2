"""`splitserve rollout ...`: the commands by name. What they need is imported when they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors_shown import shows_errors
from cli.fleet_address import Release
from cli.output_form import ViewOutput, checked_view_form

if TYPE_CHECKING:
    from cli.exit_code import ExitCode

rollout_app = typer.Typer(
    help="Rolling updates of a release on Kubernetes.", no_args_is_help=True, rich_markup_mode=None
)
PoolName = Annotated[str | None, typer.Argument(help="default: all")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what it would do")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]


@rollout_app.command("status")
@shows_errors
def status(
    release: Release,
    pool: PoolName = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="until it is done, or something is in its way")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="between two looks")
    ] = 2.0,
    output: ViewOutput = "table",
) -> None:
    """Show how far pools are; 1: not done."""
    from cli.rollout import show_rollout

    every_s, form = interval if watch else None, checked_view_form(output)
    raise typer.Exit(show_rollout(release, pool, output=form, every_s=every_s))


@rollout_app.command("pause")
@shows_errors
def pause(
    release: Release,
    pool: PoolName = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: ViewOutput = "table",
) -> None:
    """Leave pods as they are; 4: refused."""
    raise typer.Exit(_changed("pause", release, pool, (dry_run, yes), output))


@rollout_app.command("resume")
@shows_errors
def resume(
    release: Release,
    pool: PoolName = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: ViewOutput = "table",
) -> None:
    """Go on after a pause; 4: refused."""
    raise typer.Exit(_changed("resume", release, pool, (dry_run, yes), output))


@rollout_app.command("undo")
@shows_errors
def undo(
    release: Release,
    pool: PoolName = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: ViewOutput = "table",
) -> None:
    """Go back to the revision before; 4: refused."""
    raise typer.Exit(_changed("undo", release, pool, (dry_run, yes), output))


def _changed(
    deed: str, release: str, pool: str | None, answers: tuple[bool, bool], output: str
) -> ExitCode:
    """`answers`: of --dry-run and of --yes."""
    from cli.rollout import RolloutRequest, change_rollout
    from cluster.scaling.rollout import RolloutDeed

    request = RolloutRequest(
        deed=RolloutDeed(deed),
        pool=pool,
        is_dry_run=answers[0],
        is_agreed=answers[1],
        output=checked_view_form(output),
    )
    return change_rollout(release, request)
