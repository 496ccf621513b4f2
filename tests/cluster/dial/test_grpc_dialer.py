"""The gRPC adapter: whatever happens below, its callers see typed errors or their own end."""

import asyncio

import pytest

from cluster.deadline import Deadline
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import DeadlineExceeded, NotReady, WorkerLost
from cluster.pairing import Pairing
from cluster.rpc import RpcServer
from protos import handoff_pb2, membership_pb2, worker_pb2, worker_pb2_grpc
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
    membership, router = dialer.membership(NOBODY), dialer.operator(NOBODY)
    worker, supervisor = dialer.worker_admin(NOBODY), dialer.supervisor(NOBODY)
    with pytest.raises(WorkerLost):
        await prefill.shake_hands(handoff_pb2.HandshakeRequest(), timeout_s=20)
    with pytest.raises(WorkerLost):
        await prefill.prefill(handoff_pb2.PrefillRequest(), Deadline.after(20)).next()
    with pytest.raises(WorkerLost):
        await session.write(worker_pb2.RouterMessage())
        await session.read()
    with pytest.raises(WorkerLost):
        await membership.join(membership_pb2.JoinRequest(), timeout_s=20)
    with pytest.raises(WorkerLost):
        await router.members(timeout_s=20)
    with pytest.raises(WorkerLost):
        await worker.status(worker_pb2.StatusRequest(), timeout_s=20)
    with pytest.raises(WorkerLost):
        await supervisor.report(membership_pb2.SupervisorReport(), timeout_s=20)
    for link in (prefill, session, membership, router, worker, supervisor):
        await link.close()


class AdminOfOne(worker_pb2_grpc.WorkerAdminServicer):
    """Of a worker that was never promoted: who asks for that waits."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def Status(self, request, context):
        self.asked.append(request)
        return worker_pb2.StatusResponse(state="ready")

    async def LoadAdapter(self, request, context):
        self.asked.append(request)
        return worker_pb2.LoadAdapterResponse(digest="abc")

    async def UnloadAdapter(self, request, context):
        self.asked.append(request)
        return worker_pb2.UnloadAdapterResponse(known=True)

    async def Promote(self, request, context):
        self.asked.append(request)
        await asyncio.Event().wait()


async def test_what_goes_to_a_worker_comes_to_it_and_its_answers_come_back():
    server, admin = RpcServer("127.0.0.1", 0), AdminOfOne()
    server.add(worker_pb2_grpc.add_WorkerAdminServicer_to_server, admin, "admin")
    link = GrpcDialer().worker_admin(f"127.0.0.1:{await server.start()}")
    asked = [
        worker_pb2.StatusRequest(check_invariants=True),
        worker_pb2.LoadAdapterRequest(name="one", path="folder"),
        worker_pb2.UnloadAdapterRequest(name="one"),
        worker_pb2.PromoteRequest(),
    ]
    assert (await link.status(asked[0], timeout_s=20)).state == "ready"
    assert (await link.load_adapter(asked[1], timeout_s=20)).digest == "abc"
    assert (await link.unload_adapter(asked[2], timeout_s=20)).known
    promoting = asyncio.create_task(link.promote(timeout_s=60))
    async with asyncio.timeout(20):
        while len(admin.asked) < len(asked):
            await asyncio.sleep(0.001)
    assert admin.asked == asked
    await link.close()
    with pytest.raises(WorkerLost, match="closed"):
        await promoting
    with pytest.raises(WorkerLost):
        await link.status(asked[0], timeout_s=20)
    await server.stop(0)


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
