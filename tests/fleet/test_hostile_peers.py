"""Whatever is said to a worker's or the router's inner ports: typed refusals, the same processes,
and other requests that do not notice."""

import asyncio
import math

import grpc
import pytest

from cluster.errors import InternalError, InvalidRequest
from cluster.rpc import error_of, open_channel
from protos import (
    generation_pb2,
    handoff_pb2,
    handoff_pb2_grpc,
    membership_pb2,
    membership_pb2_grpc,
    worker_pb2,
)
from tests.fleet.put_directly import submit_alone, target_of
from tests.fleet.support import fleet_channel, wait_for
from tests.fleet.test_bad_input import pids
from tests.fleet.test_load import is_quiet
from tests.fleet.test_parity import generate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
ROOT = bytes(16)


def sampling(**fields):
    return generation_pb2.SamplingParams(**{"max_tokens": 4, "temperature": 0.0} | fields)


REQUESTS = {
    "no prompt": {"token_ids": []},
    "a token out of the vocabulary": {"token_ids": [1, 2**32 - 1]},
    "ten million tokens": {"token_ids": [1] * 10_000_000},
    "no choice": {"sampling": sampling(n=0)},
    "a million choices": {"sampling": sampling(n=10**6)},
    "a temperature of NaN": {"sampling": sampling(temperature=math.nan)},
    "an infinite penalty": {"sampling": sampling(presence_penalty=math.inf)},
    "a bias of NaN": {"sampling": sampling(logit_bias={1: math.nan})},
    "a bias on no token": {"sampling": sampling(logit_bias={2**32 - 1: 1.0})},
    "a million biases": {"sampling": sampling(logit_bias=dict.fromkeys(range(10**6), 1.0))},
    "no token to make": {"sampling": sampling(max_tokens=0)},
    "a short cache root": {"cache_root": b"x"},
    "a huge cache root": {"cache_root": bytes(10**6)},
    "a huge id": {"request_id": "x" * 10**6},
}


@pytest.fixture
async def view(pair_fleet):
    """The router's channel and its members by role."""
    async with fleet_channel(pair_fleet.grpc_address) as channel:
        stub = membership_pb2_grpc.MembershipStub(channel)
        reply = await stub.Members(membership_pb2.MembersRequest())
        yield channel, {state.member.role: state.member for state in reply.members}


@pytest.fixture(autouse=True)
async def undisturbed(pair_fleet, reference, view):
    """Before, beside and after: the same processes and right answers."""
    router, _ = view
    before = pids(pair_fleet)
    is_over = False

    async def keep_asking():
        while not is_over:
            tokens, _ = await generate(router, reference.prompts[1])
            assert tokens == reference.answers[1]

    asking = asyncio.create_task(keep_asking())
    yield
    is_over = True
    await asking
    assert pids(pair_fleet) == before
    await asyncio.to_thread(wait_for, lambda: is_quiet(pair_fleet), timeout_s=60, what="quiet")


async def refusal(call):
    """The typed error of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    error = error_of(failure.value)
    assert not isinstance(error, InternalError), error.message
    return error


async def test_a_prefill_worker_refuses_what_it_cannot_compute(view):
    member = view[1]["prefill"]
    good = {
        "request_id": "hostile", "incarnation": member.incarnation, "token_ids": [1, 2, 3],
        "sampling": sampling(), "cache_root": ROOT,
    }  # fmt: skip
    async with fleet_channel(member.address) as channel:
        stub = handoff_pb2_grpc.PrefillWorkerStub(channel)
        for change in (*REQUESTS.values(), {"incarnation": "another"}, {"incarnation": ""}):
            await refusal(stub.Prefill(handoff_pb2.PrefillRequest(**good | change), timeout=30))
        await refusal(stub.Handshake(handoff_pb2.HandshakeRequest()))
        await refusal(
            stub.Handshake(
                handoff_pb2.HandshakeRequest(
                    pairing=handoff_pb2.Pairing(weights_digest="☃" * 10**5), worker_id="x" * 10**5
                )
            )
        )
        beyond = handoff_pb2.PrefillRequest(**good | {"first_block": 2**32 - 1})
        async for event in stub.Prefill(beyond, timeout=30):
            assert not event.HasField("blocks_ready")
            if event.HasField("done"):
                break


async def test_a_decode_worker_refuses_what_it_cannot_run(view):
    members = view[1]
    good = {
        "request_id": "hostile", "token_ids": [1, 2, 3], "sampling": sampling(),
        "cache_root": ROOT, "timeout_ms": 20_000.0, "prefill": [target_of(members["prefill"])],
    }  # fmt: skip
    endless = {"an endless deadline": {"timeout_ms": math.nan}}
    async with fleet_channel(members["decode"].address) as channel:
        for name, change in (REQUESTS | endless).items():
            submit = worker_pb2.Submit(**good | change)
            _, ended = await submit_alone(channel, members["decode"], submit)
            assert ended.error.code not in ("", "internal_error"), (name, ended.error)
        elsewhere = worker_pb2.PrefillTarget(worker_id="p", incarnation="p", address="127.0.0.1:1")
        tokens, ended = await submit_alone(
            channel, members["decode"], worker_pb2.Submit(**good | {"prefill": [elsewhere] * 3})
        )
        assert len(tokens) == 4
        assert not ended.HasField("error")


async def test_the_router_refuses_members_that_cannot_be(view):
    router, members = view
    stub = membership_pb2_grpc.MembershipStub(router)
    changes = [
        *({"address": a} for a in ("", "nowhere", "☃:1", "1.2.3.4:0", "x:99999", "unix:///tmp/x")),
        {"address": "x" * 10**6 + ":1"},
        {"worker_id": "☃"}, {"worker_id": ""}, {"worker_id": "x" * 10**6}, {"worker_id": "a b\n"},
        {"incarnation": ""}, {"role": "king"}, {"model": "\x1b[2J"}, {"version": "v" * 10**6},
        {"kv_events_address": "ipc:///etc/passwd"}, {"max_context_tokens": 0},
    ]  # fmt: skip
    for change in changes:
        member = membership_pb2.Member()
        member.CopyFrom(members["decode"])
        member.worker_id, member.incarnation = "hostile", "hostile-1"
        for name, value in change.items():
            setattr(member, name, value)
        await refusal(stub.Join(membership_pb2.JoinRequest(member=member)))
    await refusal(stub.Join(membership_pb2.JoinRequest()))
    for worker_id in ("", "nobody", "☃" * 1000, members["decode"].worker_id):
        beat = membership_pb2.BeatRequest(worker_id=worker_id, incarnation="none", draining=True)
        assert not (await stub.Beat(beat)).known
        await stub.Leave(membership_pb2.LeaveRequest(worker_id=worker_id, incarnation="none"))
    bad_load = worker_pb2.EngineLoad(decode_step_ms=math.nan)
    await refusal(stub.Beat(membership_pb2.BeatRequest(worker_id="x", load=bad_load)))


async def test_bytes_that_are_no_message_are_refused(view):
    router, members = view
    calls = [
        (router, "/splitserve.worker.v1.Membership/Join"),
        (router, "/splitserve.v1.Inference/ListModels"),
    ]
    async with (
        fleet_channel(members["prefill"].address) as prefill,
        fleet_channel(members["decode"].address) as decode,
    ):
        calls += [
            (prefill, "/splitserve.worker.v1.PrefillWorker/Handshake"),
            (decode, "/splitserve.worker.v1.WorkerAdmin/Status"),
        ]
        for channel, method in calls:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(method)(b"\xff" * 1000, timeout=60)
        session = decode.stream_stream("/splitserve.worker.v1.DecodeWorker/Session")()
        await session.write(b"\xff" * 1000)
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            async with asyncio.timeout(60):
                await session.read()
        assert isinstance(error_of(failure.value), InvalidRequest)


async def test_a_member_that_takes_another_s_name_is_refused_while_that_one_beats(pair_fleet, view):
    router, members = view
    impostor = membership_pb2.Member()
    impostor.CopyFrom(members["prefill"])
    impostor.incarnation, impostor.address = "impostor", "127.0.0.1:9"
    stub = membership_pb2_grpc.MembershipStub(router)
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await stub.Join(membership_pb2.JoinRequest(member=impostor))
    assert "prefill-0" in refusal.value.details()
    found = pair_fleet.status(check=False)["members"]
    assert members["prefill"].incarnation in [m["incarnation"] for m in found]


async def test_a_stranger_without_the_fleet_s_token_is_refused_on_every_port(pair_fleet, view):
    _, members = view
    methods = {
        pair_fleet.grpc_address: ["Membership/Join", "Membership/Leave", "Membership/Members"],
        members["prefill"].address: ["PrefillWorker/Handshake", "WorkerAdmin/Drain"],
        members["decode"].address: ["WorkerAdmin/Status", "WorkerAdmin/Drain"],
    }
    for address, names in methods.items():
        async with open_channel(address) as stranger:
            for name in names:
                call = stranger.unary_unary(f"/splitserve.worker.v1.{name}")(b"", timeout=60)
                assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
    assert {state["state"] for state in pair_fleet.status()["members"]} == {"ready"}
