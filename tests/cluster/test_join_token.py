"""One secret for the processes of a fleet: where it comes from, and who is let in by it."""

from __future__ import annotations

import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hmac import compare_digest
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cluster.deadline import Deadline
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import ConfigError, WrongToken
from cluster.join_guard import join_guards
from cluster.join_token import JOIN_TOKEN, bearer_of, fleets_token, operators_token, own_token
from cluster.rpc import RpcServer, open_channel
from protos import (
    handoff_pb2,
    handoff_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    membership_pb2,
    membership_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)

OURS, THEIRS = "ours-of-this-fleet-alone", "theirs-of-another-fleet"
OPEN = "splitserve.v1.Inference"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv(JOIN_TOKEN, raising=False)
    monkeypatch.setenv("SPLITSERVE_HOME", str(tmp_path))
    return tmp_path


def test_a_fleet_s_token_is_made_once_and_its_operators_have_it(home: Path) -> None:
    assert own_token() is None and operators_token() is None
    token = fleets_token()
    assert len(token) >= 40
    assert fleets_token() == operators_token() == token
    assert own_token() is None, "a process that was given none asks nobody for one"
    assert stat.S_IMODE((home / "join-token").stat().st_mode) == 0o600


def test_of_many_that_make_it_at_once_all_have_the_same(home: Path) -> None:
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.append(fleets_token())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 16 and len(set(made)) == 1
    assert [each.name for each in home.iterdir()] == ["join-token"]


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", " Bearer "])
def test_a_header_shows_a_token_whatever_the_case_of_its_scheme(scheme: str) -> None:
    assert bearer_of(f"{scheme} {OURS}") == bearer_of(f"{scheme}   {OURS} ") == OURS


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", OURS, f"Basic {OURS}", "Bearer\t"]
)
def test_a_header_without_a_scheme_or_of_another_one_shows_none(header: str | None) -> None:
    assert bearer_of(header) == ""


def test_the_variable_wins_over_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    fleets_token()
    monkeypatch.setenv(JOIN_TOKEN, OURS)
    assert own_token() == operators_token() == fleets_token() == OURS


@pytest.mark.parametrize("token", ["short", "with a space in its middle", "umlauts-äöüäöüäöü"])
def test_a_token_that_is_none_is_refused_and_not_repeated(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JOIN_TOKEN, token)
    with pytest.raises(ConfigError, match=JOIN_TOKEN) as refused:
        own_token()
    assert token not in str(refused.value)


@pytest.mark.parametrize("token", ["x" * 40, "passwordpassword", "1234123412341234"])
def test_a_token_that_is_easily_guessed_is_refused_with_how_to_make_one(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JOIN_TOKEN, token)
    with pytest.raises(ConfigError, match="different .*allowed: 8 or more; .*openssl") as no:
        own_token()
    assert token not in str(no.value)


class Fleet(
    membership_pb2_grpc.MembershipServicer,
    handoff_pb2_grpc.PrefillWorkerServicer,
    worker_pb2_grpc.DecodeWorkerServicer,
    inference_pb2_grpc.InferenceServicer,
):
    """One process that is everything, and counts who reaches it."""

    def __init__(self) -> None:
        self.num_reached = 0

    async def Members(self, request: Any, context: Any) -> Any:
        self.num_reached += 1
        return membership_pb2.MembersResponse(num_queued=7)

    async def Prefill(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.num_reached += 1
        yield handoff_pb2.PrefillEvent()

    async def Session(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        self.num_reached += 1
        async for _ in requests:
            yield worker_pb2.WorkerFrame()

    async def ListModels(self, request: Any, context: Any) -> Any:
        self.num_reached += 1
        return inference_pb2.ListModelsResponse()


@asynccontextmanager
async def fleet_with(
    token: str | None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Fleet, str]]:
    """And its address."""
    with monkeypatch.context() as patched:
        if token is not None:
            patched.setenv(JOIN_TOKEN, token)
        server = RpcServer("127.0.0.1", 0, guards=join_guards(open_to=[OPEN]))
    fleet = Fleet()
    server.add(membership_pb2_grpc.add_MembershipServicer_to_server, fleet, "membership")
    server.add(handoff_pb2_grpc.add_PrefillWorkerServicer_to_server, fleet, "prefill")
    server.add(worker_pb2_grpc.add_DecodeWorkerServicer_to_server, fleet, "decode")
    server.add(inference_pb2_grpc.add_InferenceServicer_to_server, fleet, OPEN)
    try:
        yield fleet, f"127.0.0.1:{await server.start()}"
    finally:
        await server.stop(0)


async def ask_everything(dialer: GrpcDialer, address: str) -> list[object]:
    """What each kind of call came to: an answer or an error."""
    operator, prefill = dialer.operator(address), dialer.prefill_worker(address)
    session = dialer.session(address)
    outcomes: list[object] = []
    calls = [
        lambda: operator.members(timeout_s=20),
        lambda: prefill.prefill(handoff_pb2.PrefillRequest(), Deadline.after(20)).next(),
        lambda: said_and_heard(session),
    ]
    for call in calls:
        try:
            outcomes.append(await call())
        except WrongToken as refusal:
            outcomes.append(refusal)
    for link in (operator, prefill, session):
        await link.close()
    return outcomes


async def said_and_heard(session: Any) -> object:
    await session.write(worker_pb2.RouterMessage())
    return await session.read()


async def test_who_shows_the_token_is_served_by_every_kind_of_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fleet_with(OURS, monkeypatch) as (fleet, address):
        outcomes = await ask_everything(GrpcDialer(OURS), address)
        assert not any(isinstance(each, WrongToken) for each in outcomes), outcomes
        assert fleet.num_reached == 3


@pytest.mark.parametrize("shown", [None, THEIRS], ids=["none", "another's"])
async def test_nobody_else_reaches_anything(
    shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet_with(OURS, monkeypatch) as (fleet, address):
        outcomes = await ask_everything(GrpcDialer(shown), address)
        assert [type(each) for each in outcomes] == [WrongToken] * 3
        what = "no join token" if shown is None else "the join token of another fleet"
        assert all(what in str(each) and OURS not in str(each) for each in outcomes)
        assert fleet.num_reached == 0


async def test_the_token_is_compared_in_a_time_that_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = list[bytes]()

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return compare_digest(one, other)

    monkeypatch.setattr("cluster.join_token.hmac.compare_digest", compare)
    async with fleet_with(OURS, monkeypatch) as (_, address):
        await ask_everything(GrpcDialer(THEIRS), address)
    assert compared == [THEIRS.encode()] * 3


async def test_probes_and_what_is_open_need_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet_with(OURS, monkeypatch) as (_, address), open_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        stub = inference_pb2_grpc.InferenceStub(channel)
        assert await stub.ListModels(inference_pb2.ListModelsRequest()) is not None
        missing = channel.unary_unary("/splitserve.v1.None/Method")(b"")
        assert await missing.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_fleet_without_a_token_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet_with(None, monkeypatch) as (fleet, address):
        await ask_everything(GrpcDialer(THEIRS), address)
        assert fleet.num_reached == 3
