"""Whose orders a router takes: those with the fleet's token, and its certificate if it asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import SplitserveError, WorkerLost, WrongToken
from cluster.join_guard import join_guards
from cluster.join_token import JOIN_TOKEN
from cluster.rpc import RpcServer
from cluster.scaling.scaler import ScaleOrder
from cluster.scaling.supervised import SupervisedScaler
from cluster.tls.fleet import FLEET_TLS
from cluster.tls.servers import fleet_credentials
from protos import membership_pb2, membership_pb2_grpc
from tests.cluster.tls.authority import Authority

OURS, THEIRS = "ours-of-this-fleet-alone", "theirs-of-another-fleet"


class Obedient(membership_pb2_grpc.MembershipServicer):
    """Takes every order that reaches it."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    async def Scale(self, request: membership_pb2.ScaleOrder, context: Any) -> Any:
        self.taken.append(request.pool)
        return membership_pb2.ScaleAnswer(pool=request.pool, size=request.size)


@asynccontextmanager
async def served(router: Obedient) -> AsyncIterator[str]:
    """Its address; its locks are those of the environment."""
    server = RpcServer("127.0.0.1", 0, guards=join_guards(), credentials=fleet_credentials())
    server.add(membership_pb2_grpc.add_MembershipServicer_to_server, router, "membership")
    try:
        yield f"127.0.0.1:{await server.start()}"
    finally:
        await server.stop(0)


async def outcome_of(dialer: GrpcDialer, address: str) -> SplitserveError | None:
    """Of one order; None where it was taken."""
    scaler = SupervisedScaler(dialer, address)
    try:
        await scaler.scale(ScaleOrder(pool="decode", size=2))
    except SplitserveError as failure:
        return failure
    finally:
        await scaler.close()
    return None


@pytest.fixture(autouse=True)
def fleets_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JOIN_TOKEN, OURS)
    monkeypatch.delenv(FLEET_TLS, raising=False)


@pytest.mark.parametrize("shown", [None, THEIRS], ids=["none", "another's"])
async def test_an_order_without_the_fleet_s_token_reaches_nobody(
    shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = Obedient()
    async with served(router) as address:
        monkeypatch.delenv(JOIN_TOKEN)
        assert isinstance(await outcome_of(GrpcDialer(shown), address), WrongToken)
        assert router.taken == []
        assert await outcome_of(GrpcDialer(OURS), address) is None
    assert router.taken == ["decode"]


async def test_a_worker_s_certificate_without_the_token_orders_nothing_nor_the_token_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Authority().fill(tmp_path)
    router, plain = Obedient(), GrpcDialer(OURS)
    monkeypatch.setenv(FLEET_TLS, str(tmp_path))
    async with served(router) as address:
        monkeypatch.delenv(JOIN_TOKEN)
        assert isinstance(await outcome_of(GrpcDialer(None), address), WrongToken)
        assert isinstance(await outcome_of(plain, address), WorkerLost)
        assert router.taken == []
        assert await outcome_of(GrpcDialer(OURS), address) is None


async def test_where_there_is_no_lock_whoever_reaches_the_port_may_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(JOIN_TOKEN)
    router = Obedient()
    async with served(router) as address:
        assert await outcome_of(GrpcDialer(None), address) is None
