"""Whether a machine and a fleet are well: the commands, which import when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.fleet_address import DEFAULT_ROUTER, GrpcAddress, MaybeRelease
from cli.output_form import ViewOutput, checked_view_form

health_app = typer.Typer(rich_markup_mode=None)
Bundle = Annotated[Path | None, typer.Option("--bundle", metavar="FILE", help="see support-bundle")]


@health_app.command()
@shows_errors
def doctor(
    output: ViewOutput = "table",
    port: Annotated[int, typer.Option(help="HTTP port to look at")] = 8000,
    grpc_port: Annotated[int, typer.Option(help="gRPC port to look at")] = 50051,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="a real transfer over each pair of the fleet instead")
    ] = False,
    in_cluster: Annotated[
        bool, typer.Option("--in-cluster", help="what a pod sees of its cluster instead")
    ] = False,
    deadline: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="of --pairs")] = 120.0,
    bundle: Bundle = None,
    grpc: GrpcAddress = DEFAULT_ROUTER,
) -> None:
    """Check this machine, or a fleet's pairs, with real transfers; 1: something failed."""
    from dataclasses import asdict

    from cli.doctor.examine import Examination, reported, verdict_of
    from cli.question import complained
    from cluster.errors import ConfigError, SplitserveError

    examination = Examination(
        ports=(port, grpc_port),
        router=grpc,
        pairs=pairs,
        in_cluster=in_cluster,
        limit_s=deadline,
    )
    form = checked_view_form(output)
    try:
        lines = reported(examination.checks(), output=form)
    except ConfigError:
        raise
    except SplitserveError as failure:
        raise typer.Exit(complained(failure, grpc)) from None
    if bundle is not None:
        from cli.bundle.make import make_bundle

        make_bundle(bundle, grpc, findings=[asdict(line) for line in lines])
    raise typer.Exit(verdict_of(lines))


@health_app.command("support-bundle")
@shows_errors
def support_bundle(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.tar.gz", help="default: by the time"),
    ] = None,
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="for all of it; the rest is left out")
    ] = 120.0,
    log_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="of `serve`; default: the latest")
    ] = None,
    examine: Annotated[
        bool, typer.Option("--doctor/--no-doctor", help="with the doctor's findings")
    ] = True,
    grpc: GrpcAddress = DEFAULT_ROUTER,
    kubernetes: MaybeRelease = None,
) -> None:
    """Pack what helps others to help: state, settings, logs, metrics; secrets are redacted."""
    from cli.bundle.make import default_name, make_bundle

    path = output or Path(default_name())
    made = make_bundle(
        path,
        grpc,
        limit_s=deadline,
        log_dir=log_dir,
        runs_doctor=examine,
        release=kubernetes,
    )
    raise typer.Exit(made)
