"""`splitserve routes`: what each way to serve a prompt would cost now."""

from __future__ import annotations

import asyncio
import sys

import typer

from cli.decision_view import fields_of, prices_of
from cli.exit_code import ExitCode
from cli.json_output import print_data
from cli.terminal import complain, shown
from cluster.dial.dialer import Dialer
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import DeadlineExceeded, SplitserveError, WorkerLost
from cluster.join_token import operators_token
from protos import router_admin_pb2

ROUTER_TIMEOUT_S = 5.0
"""Long texts are encoded on the way."""


def asked_for(
    text: str | None, *, raw: bool, ids: str | None, new_tokens: int | None
) -> router_admin_pb2.PriceRequest:
    """Raises typer.BadParameter unless exactly one prompt is named."""
    if sum(item is not None for item in (text, ids, new_tokens)) != 1:
        raise typer.BadParameter("name one prompt: TEXT, --ids or --new-tokens")
    if ids is not None:
        return router_admin_pb2.PriceRequest(ids=router_admin_pb2.TokenIds(ids=_ids(ids)))
    if new_tokens is not None:
        return router_admin_pb2.PriceRequest(new_tokens=new_tokens)
    if raw:
        return router_admin_pb2.PriceRequest(text=text)
    return router_admin_pb2.PriceRequest(chat=text)


def show_routes(address: str, asked: router_admin_pb2.PriceRequest, *, output: str) -> ExitCode:
    """UNREACHABLE without a router; FAILED where the prompt could not be served."""
    try:
        decision = asyncio.run(_ask(GrpcDialer(operators_token()), address, asked))
    except (WorkerLost, DeadlineExceeded) as failure:
        complain(
            f"the router does not answer at {address}: {failure.message}",
            remedy="name it with --grpc HOST:PORT",
        )
        return ExitCode.UNREACHABLE
    except SplitserveError as failure:
        complain(failure.message)
        return ExitCode.FAILED
    if not print_data(fields_of(decision), output):
        print(shown(prices_of(decision), sys.stdout))
    return ExitCode.OK


async def _ask(
    dialer: Dialer, address: str, asked: router_admin_pb2.PriceRequest
) -> router_admin_pb2.Decision:
    link = dialer.operator(address)
    try:
        return await link.price(asked, timeout_s=ROUTER_TIMEOUT_S)
    finally:
        await link.close()


def _ids(text: str) -> list[int]:
    try:
        ids = [int(item) for item in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint="--ids") from None
    if any(not 0 <= item < 2**32 for item in ids):
        raise typer.BadParameter("ids are from 0 to 4294967295", param_hint="--ids")
    return ids
