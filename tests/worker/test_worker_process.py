"""A worker process from its start to its end, over a scripted engine."""

import asyncio
import os
import signal

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cluster.errors import (
    ConfigError,
    Draining,
    NotReady,
    PairingMismatch,
    RankLost,
    UnsupportedModel,
)
from cluster.generation import EngineLoad, Usage
from cluster.identity import Role
from cluster.kv_events.keys import KEY_CHARS
from cluster.kv_events.publisher import KvEventPublisher
from cluster.membership.client import LAST_RETRY_S, REFUSED_S
from cluster.membership.member import member_from_wire
from cluster.process.startup import REPORT_FD, Leaving, parse_report
from cluster.rpc import error_of, open_channel
from cluster.worker_identity import WorkerIdentity
from cluster.world import World
from engine.contract.commands import Inspect, ReleaseExport, Submit
from engine.contract.messages import Frame, Inspection, RequestEnded
from protos import handoff_pb2_grpc, worker_pb2, worker_pb2_grpc
from tests.decode_worker.decode_bench import router_end
from tests.prefill_worker.prefill_bench import prefill_request
from tests.scripted_dialer import ScriptedDialer, ScriptedRouter
from tests.virtual_time import VirtualTime, settle
from tests.worker.worker_bench import noting_router, options_for, running_worker
from worker.engine.host import EngineHost

SERVING = health_pb2.HealthCheckResponse.SERVING
SERVICES = {
    Role.PREFILL: "splitserve.worker.v1.PrefillWorker",
    Role.DECODE: "splitserve.worker.v1.DecodeWorker",
}


@pytest.fixture
async def router():
    async with noting_router() as running:
        yield running


async def health(channel, role: Role):
    request = health_pb2.HealthCheckRequest(service=SERVICES[role])
    return (await health_pb2_grpc.HealthStub(channel).Check(request)).status


@pytest.mark.parametrize("role", list(Role))
async def test_a_worker_gets_ready_joins_and_leaves_at_sigterm(router, role):
    async with running_worker(options_for(role, router.address)) as worker:
        address = await worker.ready()
        await router.until(lambda: router.beats)
        (member,) = router.joins
        assert (member.address, member.role, member.model) == (address, role.value, "tiny")
        assert member.kv_events_address.startswith("tcp://")
        assert len(member.kv_events_key) == len(member.kv_reader_secret) == KEY_CHARS
        assert member.pairing.block_size_tokens == 4
        async with open_channel(address) as channel:
            assert await health(channel, role) == SERVING
        os.kill(os.getpid(), signal.SIGTERM)
        assert await worker.ended() == 0
        assert [leave.incarnation for leave in router.leaves] == [member.incarnation]
        assert worker.link.is_stopped


async def test_probes_tell_plain_http_whether_a_worker_lives_and_is_ready(free_port):
    options = options_for(Role.DECODE, metrics_port=free_port, spare=True)
    async with running_worker(options) as worker, httpx.AsyncClient(timeout=30) as client:
        at = f"http://127.0.0.1:{free_port}"
        async with open_channel(await worker.ready()) as channel:
            assert (await client.get(f"{at}/live")).status_code == 200
            spare = await client.get(f"{at}/ready")
            assert (spare.status_code, spare.text) == (503, "this worker is spare\n")
            await promote(channel)
        assert (await client.get(f"{at}/ready")).status_code == 200


async def promote(channel):
    """The state that it then says it is in."""
    stub = worker_pb2_grpc.WorkerAdminStub(channel)
    return (await stub.Promote(worker_pb2.PromoteRequest())).state


@pytest.mark.parametrize("role", list(Role))
async def test_a_spare_worker_joins_when_it_is_promoted_and_not_before(router, role):
    async with (
        running_worker(options_for(role, router.address, spare=True)) as worker,
        open_channel(await worker.ready()) as channel,
    ):
        status = await worker_pb2_grpc.WorkerAdminStub(channel).Status(worker_pb2.StatusRequest())
        assert (status.state, await health(channel, role) == SERVING) == ("spare", False)
        assert router.joins == []
        assert await promote(channel) == "ready"
        assert await health(channel, role) == SERVING
        await router.until(lambda: router.beats)
        assert await promote(channel) == "ready", "it has its place already"
        (member,) = router.joins
        assert member.incarnation == status.incarnation
        worker.process.stop_requests.on_sigterm()
        assert await worker.ended() == 0
        assert [leave.incarnation for leave in router.leaves] == [member.incarnation]


async def test_a_spare_worker_takes_no_request_before_it_is_promoted():
    async with (
        running_worker(options_for(Role.PREFILL, spare=True)) as worker,
        open_channel(await worker.ready()) as channel,
    ):
        status = await worker_pb2_grpc.WorkerAdminStub(channel).Status(worker_pb2.StatusRequest())
        request = prefill_request(incarnation=status.incarnation)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await handoff_pb2_grpc.PrefillWorkerStub(channel).Prefill(request).read()
        assert isinstance(error_of(refused.value), NotReady)
        assert worker.link.told(Submit) == []


async def test_a_spare_worker_that_was_asked_to_end_takes_no_place(router):
    async with (
        running_worker(options_for(Role.DECODE, router.address, spare=True)) as worker,
        open_channel(await worker.ready()) as channel,
    ):
        await worker_pb2_grpc.WorkerAdminStub(channel).Drain(worker_pb2.DrainRequest())
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await promote(channel)
        assert isinstance(error_of(refused.value), Draining)
        worker.process.stop_requests.on_sigterm()
        assert await worker.ended() == 0
        assert router.joins == router.leaves == []


async def test_a_worker_that_listens_everywhere_tells_the_address_that_faces_the_router(router):
    options = options_for(Role.DECODE, router.address, host="0.0.0.0", insecure=True)
    async with running_worker(options) as worker:
        port = (await worker.ready()).rpartition(":")[2]
        await router.until(lambda: router.joins)
        (member,) = router.joins
        assert member.address == f"127.0.0.1:{port}"
        assert member.worker_id == f"decode-127.0.0.1-{port}"
        assert member.kv_events_address.startswith("tcp://127.0.0.1:")
        assert member.kv_replay_address.startswith("tcp://127.0.0.1:")


async def test_a_worker_is_reached_where_its_operator_says(router):
    options = options_for(Role.PREFILL, router.address, advertise_host="prefill-7.pool")
    async with running_worker(options) as worker:
        assert (await worker.ready()).startswith("prefill-7.pool:")
        await router.until(lambda: router.joins)
        assert router.joins[0].kv_events_address.startswith("tcp://prefill-7.pool:")


@pytest.mark.parametrize(
    "changes",
    [
        {"advertise_host": "0.0.0.0"},
        {"host": "0.0.0.0", "router": "10.0.0.1:port", "insecure": True},
    ],
)
async def test_a_worker_that_nobody_could_reach_does_not_start(changes):
    with pytest.raises(ConfigError, match=r"advertise.host|10\.0\.0\.1:port"):
        async with running_worker(options_for(Role.DECODE, **changes)) as worker:
            await worker.ended()


async def test_a_drain_tells_the_router_refuses_new_work_and_finishes_the_old(router):
    async with running_worker(options_for(Role.PREFILL, router.address)) as worker:
        async with open_channel(await worker.ready()) as channel:
            stub = handoff_pb2_grpc.PrefillWorkerStub(channel)
            await router.until(lambda: router.joins)
            incarnation = router.joins[0].incarnation
            running = stub.Prefill(prefill_request(incarnation=incarnation))
            await worker.link.wait_for(Submit)
            worker.process.stop_requests.on_sigterm()
            await router.until(lambda: router.beats and router.beats[-1].draining)
            assert await health(channel, Role.PREFILL) != SERVING
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Prefill(prefill_request(incarnation=incarnation)).read()
            assert isinstance(error_of(refused.value), Draining)
            assert not worker.exit_code.done()
            running.cancel()
            await worker.link.wait_for(ReleaseExport)
        assert await worker.ended() == 0


async def test_a_drain_ends_at_its_timeout(router):
    options = options_for(Role.PREFILL, router.address, drain_timeout_s=0.1)
    async with running_worker(options) as worker, open_channel(await worker.ready()) as channel:
        await router.until(lambda: router.joins)
        request = prefill_request(incarnation=router.joins[0].incarnation)
        call = handoff_pb2_grpc.PrefillWorkerStub(channel).Prefill(request)
        await worker.link.wait_for(Submit)
        worker.process.stop_requests.on_sigterm()
        assert await worker.ended() == 0
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()


async def test_a_second_sigterm_stops_at_once(router):
    async with (
        running_worker(options_for(Role.PREFILL, router.address)) as worker,
        open_channel(await worker.ready()) as channel,
    ):
        await router.until(lambda: router.joins)
        request = prefill_request(incarnation=router.joins[0].incarnation)
        call = handoff_pb2_grpc.PrefillWorkerStub(channel).Prefill(request)
        await worker.link.wait_for(Submit)
        worker.process.stop_requests.on_sigterm()
        worker.process.stop_requests.on_sigterm()
        assert await worker.ended() == 0
        call.cancel()


async def session_with(router, channel):
    """With the worker that has joined."""
    await router.until(lambda: router.joins)
    member = member_from_wire(router.joins[0])
    return router_end(channel, WorkerIdentity(member.key, member.pairing))


async def test_when_the_engine_dies_the_process_ends_with_1_and_leaves(router):
    async with running_worker(options_for(Role.DECODE, router.address)) as worker:
        async with open_channel(await worker.ready()) as channel:
            session = await session_with(router, channel)
            submit = worker_pb2.Submit(request_id="a", token_ids=[1], timeout_ms=5000)
            submit.sampling.max_tokens = 1
            await session.say(submit=submit)
            await worker.link.wait_for(Submit)
            worker.link.die("SIGKILL")
            assert (await session.ended("a")).error.code == "worker_lost"
        assert await worker.ended() == 1
        await router.until(lambda: router.leaves)


async def test_a_supervisor_hears_by_what_a_worker_ends_before_it_has_ended(
    router, monkeypatch, tmp_path
):
    with (tmp_path / "reports").open("w+b") as reports:
        monkeypatch.setenv(REPORT_FD, str(reports.fileno()))
        async with running_worker(options_for(Role.DECODE, router.address)) as worker:
            await worker.ready()
            worker.link.last_word = RankLost("rank 1 ended")
            worker.link.die("exit code 1")
            assert await worker.ended() == 1
        reports.seek(0)
        said = [parse_report(line) for line in reports]
    assert [report for report in said if isinstance(report, Leaving)][0] == Leaving("rank_lost")


async def test_an_engine_that_cannot_start_is_reported_as_its_own_error():
    error = UnsupportedModel("architecture 'mamba' is not supported")
    async with running_worker(options_for(Role.DECODE), start_error=error) as worker:
        with pytest.raises(UnsupportedModel, match="mamba"):
            await worker.ended()
        assert worker.link.is_stopped


async def test_a_worker_without_a_router_stands_alone():
    async with (
        running_worker(options_for(Role.DECODE)) as worker,
        open_channel(await worker.ready()) as channel,
    ):
        assert await health(channel, Role.DECODE) == SERVING


async def test_status_answers_with_the_engines_numbers_and_violations():
    async with (
        running_worker(options_for(Role.DECODE, worker_id="d1")) as worker,
        open_channel(await worker.ready()) as channel,
    ):
        worker.link.say(Frame(load=EngineLoad(num_running=3, total_blocks=8)))
        admin = worker_pb2_grpc.WorkerAdminStub(channel)
        asked = asyncio.create_task(
            _unary(admin.Status(worker_pb2.StatusRequest(check_invariants=True)))
        )
        inspect = await worker.link.wait_for(Inspect)
        worker.link.say(Frame(inspections=[Inspection(inspect.token, ["block 3 is lost"], [])]))
        status = await asked
    assert (status.worker_id, status.role, status.state) == ("d1", "decode", "ready")
    assert status.load.num_running == 3
    assert list(status.violations) == ["block 3 is lost"]
    assert (status.pid, status.engine_pid) == (os.getpid(), 1)


async def test_an_operators_drain_answers_when_the_last_request_is_finished(router):
    async with (
        running_worker(options_for(Role.DECODE, router.address)) as worker,
        open_channel(await worker.ready()) as channel,
    ):
        session = await session_with(router, channel)
        submit = worker_pb2.Submit(request_id="a", token_ids=[1], timeout_ms=5000)
        submit.sampling.max_tokens = 1
        await session.say(submit=submit)
        engine_id = (await worker.link.wait_for(Submit)).request.request_id
        drain = asyncio.create_task(
            _unary(worker_pb2_grpc.WorkerAdminStub(channel).Drain(worker_pb2.DrainRequest()))
        )
        await router.until(lambda: router.beats and router.beats[-1].draining)
        assert not drain.done()
        worker.link.say(Frame(ended=[RequestEnded(request_id=engine_id, usage=Usage(1, 1, 0))]))
        assert (await drain).state == "draining"
        assert not worker.exit_code.done()


async def test_a_worker_reaches_its_router_by_way_of_its_world_and_beats_at_its_time():
    time = VirtualTime()
    router = ScriptedRouter(beat_interval_s=0.5, clock=time)
    world = World(dialer=ScriptedDialer(router), clock=time, sleep=time.sleep)
    options = options_for(Role.PREFILL, "nowhere:1")
    async with running_worker(options, world=world) as worker:
        await worker.ready()
        await settle()
        assert len(router.asked_s) == 1
        router.is_there = True
        await time.advance(1.0)
        num_beats = router.num_beats
        await time.advance(5.0)
        assert router.num_beats == num_beats + 10


async def test_a_worker_that_its_router_refuses_for_long_is_not_ready():
    time = VirtualTime()
    router = ScriptedRouter(beat_interval_s=0.5, clock=time)
    router.is_there, router.refuses_with = True, PairingMismatch("other weights")
    world = World(dialer=ScriptedDialer(router), clock=time, sleep=time.sleep)
    options = options_for(Role.PREFILL, "nowhere:1")
    async with (
        running_worker(options, world=world) as worker,
        open_channel(await worker.ready()) as channel,
    ):
        assert await health(channel, Role.PREFILL) == SERVING
        await time.advance(REFUSED_S + 2 * LAST_RETRY_S)
        assert await health(channel, Role.PREFILL) != SERVING
        router.refuses_with = None
        await time.advance(2 * LAST_RETRY_S)
        assert await health(channel, Role.PREFILL) == SERVING


async def _unary(call):
    return await call


async def test_the_engine_is_stopped_once_and_before_the_publisher_that_it_feeds(monkeypatch):
    stopped = []

    def noted(owner):
        stop = owner.stop

        async def note(self):
            stopped.append(owner)
            await stop(self)

        monkeypatch.setattr(owner, "stop", note)

    noted(EngineHost)
    noted(KvEventPublisher)
    async with running_worker(options_for(Role.PREFILL, None)) as worker:
        await worker.ready()
        worker.process.stop_requests.on_sigterm()
        assert await worker.ended() == 0
    assert stopped == [EngineHost, KvEventPublisher]
