"""The option that says where a fleet's router is."""

from __future__ import annotations

from typing import Annotated

import typer

GrpcAddress = Annotated[
    str, typer.Option("--grpc", metavar="HOST:PORT", help="the router's gRPC address")
]
