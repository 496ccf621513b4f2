"""The options that say where a fleet is: its router, or its release on Kubernetes."""

from __future__ import annotations

from typing import Annotated

import typer

GrpcAddress = Annotated[
    str, typer.Option("--grpc", metavar="HOST:PORT", help="the router's gRPC address")
]
_RELEASE = typer.Option(
    "--kubernetes", metavar="[NAMESPACE/]RELEASE", help="of the chart, by your kubeconfig"
)
Release = Annotated[str, _RELEASE]
"""Where a fleet can be nowhere else."""
MaybeRelease = Annotated[str | None, _RELEASE]
"""None: the fleet is where its router is."""
