"""The gRPC adapter: whatever happens below, its callers see typed errors or their own end."""

import asyncio

import pytest

from cluster.deadline import Deadline
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import DeadlineExceeded, NotReady, WorkerLost
from cluster.pairing import Pairing
from protos import handoff_pb2, membership_pb2, worker_pb2
from tests.decode_worker.scripted_prefill import running_prefill

NOBODY = "127.0.0.1:1"
PAIRING = Pairing(
    weights_digest="aa",
    tokenizer_digest="bb",
    dtype="float32",
    block_size_tokens=4,
    num_layers=1,
    num_kv_heads=1,
    head_dim=4,
)


@pytest.fixture
async def prefill():
    async with running_prefill("prefill-a", PAIRING) as running:
        yield running


@pytest.fixture
async def link(prefill):
    link = GrpcDialer().prefill_worker(prefill.address)
    yield link
    await link.close()


async def test_an_address_where_nobody_listens_is_a_lost_worker_on_every_link():
    dialer = GrpcDialer()
    prefill, session = dialer.prefill_worker(NOBODY), dialer.session(NOBODY)
    membership = dialer.membership(NOBODY)
    with pytest.raises(WorkerLost):
        await prefill.shake_hands(handoff_pb2.HandshakeRequest(), timeout_s=20)
    with pytest.raises(WorkerLost):
        await prefill.prefill(handoff_pb2.PrefillRequest(), Deadline.after(20)).next()
    with pytest.raises(WorkerLost):
        await session.write(worker_pb2.RouterMessage())
        await session.read()
    with pytest.raises(WorkerLost):
        await membership.join(membership_pb2.JoinRequest(), timeout_s=20)
    for link in (prefill, session, membership):
        await link.close()


async def test_events_come_in_order_and_the_error_of_the_other_side_keeps_its_class(prefill, link):
    stream = link.prefill(handoff_pb2.PrefillRequest(request_id="r"), Deadline.after(20))
    there = await prefill.stream()
    there.say_accepted(cached_tokens=4)
    there.fail(NotReady("not yet"))
    event = await stream.next()
    assert event is not None
    assert event.accepted.cached_tokens == 4
    with pytest.raises(NotReady, match="not yet"):
        await stream.next()


async def test_closing_a_stream_releases_it_and_ends_whoever_reads_it(prefill, link):
    stream = link.prefill(handoff_pb2.PrefillRequest(), Deadline.after(20))
    there = await prefill.stream()
    reading = asyncio.create_task(stream.next())
    there.say_accepted()
    await reading
    reading = asyncio.create_task(stream.next())
    await asyncio.sleep(0)
    stream.close()
    stream.close()
    with pytest.raises(WorkerLost, match="closed"):
        await reading
    async with asyncio.timeout(20):
        await there.released.wait()


async def test_closing_a_link_ends_its_streams_with_a_typed_error(prefill, link):
    stream = link.prefill(handoff_pb2.PrefillRequest(), Deadline.after(20))
    await prefill.stream()
    reading = asyncio.create_task(stream.next())
    await asyncio.sleep(0)
    await link.close()
    with pytest.raises(WorkerLost):
        await reading


async def test_a_cancelled_reader_is_cancelled_and_not_told_of_a_lost_worker(prefill, link):
    stream = link.prefill(handoff_pb2.PrefillRequest(), Deadline.after(20))
    await prefill.stream()
    reading = asyncio.create_task(stream.next())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_a_stream_ends_with_its_deadline(prefill, link):
    stream = link.prefill(handoff_pb2.PrefillRequest(), Deadline.after(0.05))
    with pytest.raises(DeadlineExceeded):
        await stream.next()
