"""A stranger walks all ports of a running fleet: he learns nothing, and nobody notices him."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import grpc
import httpx
import pytest
import zmq
import zmq.asyncio

from cluster.join_token import operators_token
from cluster.kv_events.wire import END
from cluster.membership.reach import is_wildcard
from cluster.rpc import open_channel
from protos import (
    handoff_pb2,
    handoff_pb2_grpc,
    membership_pb2,
    membership_pb2_grpc,
    router_admin_pb2,
    router_admin_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from tests.fleet.support import fleet_channel, wait_for
from tests.fleet.test_bad_input import pids
from tests.fleet.test_load import is_quiet
from tests.fleet.test_parity import generate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
LISTENING_S = 1.0
"""So long a stranger listens at a port that neither answers nor hangs up."""
SECRET_PROMPT = "The lighthouse keeper's daughter never told anyone about the copper key. "
TLS_HELLO = bytes.fromhex("16030100f8010000f40303") + bytes(32) + b"\x00" * 200
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
ZMTP = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
WORDS = {
    "garbage": bytes(range(256)) * 16,
    "a TLS hello": TLS_HELLO,
    "HTTP": b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "HTTP/2": HTTP2,
    "ZMQ": ZMTP,
    "nothing": b"",
}


@dataclass(frozen=True)
class Fleet:
    """What a stranger must not hear, and where he goes."""

    places: list[tuple[str, int]]
    members: tuple[membership_pb2.Member, ...]

    @property
    def secrets(self) -> list[bytes]:
        token = operators_token()
        assert token is not None
        incarnations = [member.incarnation for member in self.members]
        return [each.encode() for each in (token, SECRET_PROMPT.strip(), *incarnations)]


def listening(fleet) -> list[tuple[str, int]]:
    """Every TCP port at which a process of the fleet listens, whatever for."""
    connections = [each for process in fleet.processes() for each in process.net_connections("tcp")]
    places = {each.laddr for each in connections if each.status == "LISTEN"}
    return [("127.0.0.1" if is_wildcard(place.ip) else place.ip, place.port) for place in places]


async def members_of(address):
    async with fleet_channel(address) as channel:
        stub = membership_pb2_grpc.MembershipStub(channel)
        return [
            state.member for state in (await stub.Members(membership_pb2.MembersRequest())).members
        ]


def said_of(member) -> tuple[str, ...]:
    """What does not change with its work."""
    return member.worker_id, member.incarnation, member.address, member.kv_events_key


@pytest.fixture
async def walked(pair_fleet, reference):
    """Beside the walk right answers, and after it the same fleet."""
    body = {"model": "smollm2", "prompt": SECRET_PROMPT * 8, "max_tokens": 2}
    reply = await asyncio.to_thread(
        httpx.post, f"{pair_fleet.url}/v1/completions", json=body, timeout=60
    )
    assert reply.status_code == 200
    before, processes = await members_of(pair_fleet.grpc_address), pids(pair_fleet)
    is_over = False

    async def keep_asking(channel):
        while not is_over:
            tokens, _ = await generate(channel, reference.prompts[1])
            assert tokens == reference.answers[1]

    async with open_channel(pair_fleet.grpc_address) as channel:
        asking = asyncio.create_task(keep_asking(channel))
        yield Fleet(listening(pair_fleet), tuple(before))
        is_over = True
        await asking
    after = await members_of(pair_fleet.grpc_address)
    assert [said_of(member) for member in after] == [said_of(member) for member in before]
    assert pids(pair_fleet) == processes
    await asyncio.to_thread(wait_for, lambda: is_quiet(pair_fleet), timeout_s=60, what="quiet")


async def heard_at(place: tuple[str, int], words: bytes) -> bytes:
    """All that comes back; what is there when he gives up is enough."""
    heard = b""
    reader, writer = await asyncio.open_connection(*place)
    with suppress(ConnectionError, TimeoutError):
        writer.write(words)
        async with asyncio.timeout(LISTENING_S):
            while more := await reader.read(65_536):
                heard += more
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return heard


async def refusal_of(call) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code()


async def asked_over_grpc(address: str) -> list[grpc.StatusCode]:
    """Every service of the fleet, without its token."""
    async with open_channel(address) as channel:
        membership = membership_pb2_grpc.MembershipStub(channel)
        admin = worker_pb2_grpc.WorkerAdminStub(channel)
        prefill = handoff_pb2_grpc.PrefillWorkerStub(channel)
        session = worker_pb2_grpc.DecodeWorkerStub(channel).Session()
        calls = [
            membership.Members(membership_pb2.MembersRequest()),
            membership.Join(membership_pb2.JoinRequest()),
            membership.Leave(membership_pb2.LeaveRequest(worker_id="decode-0")),
            membership.Scale(membership_pb2.ScaleOrder(pool="decode", size=2)),
            router_admin_pb2_grpc.RouterAdminStub(channel).Explain(
                router_admin_pb2.ExplainRequest()
            ),
            admin.Status(worker_pb2.StatusRequest()),
            admin.Drain(worker_pb2.DrainRequest()),
            prefill.Handshake(handoff_pb2.HandshakeRequest()),
            prefill.Prefill(handoff_pb2.PrefillRequest(token_ids=[1])).read(),
            session.read(),
        ]
        return [await refusal_of(call) for call in calls]


async def test_whatever_he_says_he_hears_no_secret_and_nobody_is_disturbed(walked):
    assert len(walked.places) >= 8, "router: 2, a worker: gRPC, metrics, events, replay"
    said = [(place, name) for place in walked.places for name in WORDS]
    heard = await asyncio.gather(*(heard_at(place, WORDS[name]) for place, name in said))
    for (place, name), answer in zip(said, heard, strict=True):
        for secret in walked.secrets:
            assert secret not in answer, f"{name} at {place}"


async def test_without_the_join_token_no_service_of_the_fleet_answers(walked, pair_fleet):
    allowed = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED}
    for address in (pair_fleet.grpc_address, *(member.address for member in walked.members)):
        codes = await asked_over_grpc(address)
        assert set(codes) <= allowed, (address, codes)
        assert grpc.StatusCode.UNAUTHENTICATED in codes


async def test_without_keys_kv_events_are_neither_told_nor_repeated(walked, pair_fleet):
    context = zmq.asyncio.Context()
    strangers = []
    for member in walked.members:
        sub, dealer = context.socket(zmq.SUB), context.socket(zmq.DEALER)
        sub.subscribe(b"")
        sub.connect(member.kv_events_address)
        dealer.connect(member.kv_replay_address)
        with suppress(zmq.Again):  # he is refused already
            await dealer.send_multipart((b"", END), zmq.NOBLOCK)
        strangers += [sub, dealer]
    body = {"model": "smollm2", "prompt": "And now for events: " * 20, "max_tokens": 2}
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{pair_fleet.url}/v1/completions", json=body)
    assert answer.status_code == 200, "blocks were stored, so there were events"
    for stranger in strangers:
        assert await stranger.poll(0) == 0
    context.destroy(linger=0)
