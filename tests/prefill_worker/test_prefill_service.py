"""The prefill worker's gRPC service: the stream is the lease."""

import asyncio

import grpc
import pytest
from google.protobuf.descriptor import Descriptor

from cluster.deadline import MAX_TIMEOUT_S
from cluster.errors import (
    DeadlineExceeded,
    Draining,
    OutOfBlocks,
    PairingMismatch,
    WorkerLost,
    status_of,
)
from cluster.generation import EngineLoad, GeneratedToken, Usage
from cluster.process.lifespan import ProcessState
from cluster.rpc import error_of
from cluster.wire import pairing_to_wire
from engine.contract.commands import PrefillMode, ReleaseExport, Submit
from engine.contract.messages import Frame, QueuePlace, RequestEnded, Started, TokenEvent
from prefill_worker.export_stream import ExportStream
from protos import generation_pb2, handoff_pb2
from tests.manual_clock import ManualClock
from tests.prefill_worker.prefill_bench import (
    KEY,
    PAIRING,
    prefill_request,
    running_prefill_worker,
)
from worker.engine.link import LifeSign


@pytest.fixture
async def bench():
    async with running_prefill_worker() as running:
        yield running


def many_biases() -> generation_pb2.SamplingParams:
    biases = dict.fromkeys(range(70_000), 1.0)
    return generation_pb2.SamplingParams(max_tokens=4, logit_bias=biases)


async def read_until_done(call) -> list[str]:
    kinds = []
    async for event in call:
        kinds.append(event.WhichOneof("event"))
        if kinds[-1] == "done":
            return kinds
    raise AssertionError(f"the stream ended after {kinds}")


async def failure_of(call) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call:
            pass
    return caught.value


async def test_a_handshake_gives_pool_and_incarnation(bench):
    request = handoff_pb2.HandshakeRequest(pairing=pairing_to_wire(PAIRING), worker_id="decode-a")
    reply = await bench.stub.Handshake(request)
    assert (reply.worker_id, reply.incarnation) == (KEY.worker_id, KEY.incarnation)
    assert reply.peer.blocks_each == 8


async def test_a_handshake_with_other_weights_is_refused_with_both_values(bench):
    theirs = pairing_to_wire(PAIRING)
    theirs.weights_digest = "zz"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await bench.stub.Handshake(
            handoff_pb2.HandshakeRequest(pairing=theirs, worker_id="decode-a")
        )
    error = error_of(caught.value)
    assert isinstance(error, PairingMismatch)
    assert "'zz'" in error.message
    assert "'aa'" in error.message


async def test_a_prompt_is_announced_in_the_order_of_the_contract(bench):
    call = bench.stub.Prefill(prefill_request())
    bench.compute_prompt(await bench.submitted())
    kinds = await read_until_done(call)
    assert kinds[0] == "accepted"
    assert sorted(kinds[1:-1]) == ["blocks_ready", "first_token"]
    assert kinds[-1] == "done"
    call.cancel()


async def test_the_engine_is_asked_to_export_from_the_first_missing_block(bench):
    call = bench.stub.Prefill(prefill_request(first_block=1), timeout=20)
    await bench.submitted()
    request = bench.link.told(Submit)[0].request
    assert (request.mode, request.first_block) == (PrefillMode.EXPORT, 1)
    assert 15_000 < request.timeout_ms < 21_000
    call.cancel()


async def test_the_adapter_and_whose_the_prompt_is_are_passed_on(bench):
    call = bench.stub.Prefill(prefill_request(adapter="a" * 32, owner=b"somebody"), timeout=20)
    await bench.submitted()
    request = bench.link.told(Submit)[0].request
    assert (request.adapter, request.owner) == ("a" * 32, b"somebody")
    call.cancel()


async def test_a_prompt_without_a_deadline_has_the_longest_time_that_there_is(bench):
    call = bench.stub.Prefill(prefill_request())
    await bench.submitted()
    request = bench.link.told(Submit)[0].request
    assert request.timeout_ms > (MAX_TIMEOUT_S - 60) * 1e3
    call.cancel()


async def test_the_stream_stays_open_after_done_and_its_end_releases_the_blocks(bench):
    call = bench.stub.Prefill(prefill_request())
    engine_id = await bench.submitted()
    bench.compute_prompt(engine_id)
    await read_until_done(call)
    assert not bench.link.told(ReleaseExport)
    assert bench.worker.lifespan.num_admitted == 1
    call.cancel()
    assert (await bench.link.wait_for(ReleaseExport)).request_id == engine_id
    assert await bench.worker.lifespan.wait_idle(5)


async def next_kind(call) -> str:
    async with asyncio.timeout(5):
        return (await call.read()).WhichOneof("event")


async def test_a_waiting_reader_hears_of_progress_as_often_as_the_engine_gives_a_sign_of_life():
    now = ManualClock()
    async with running_prefill_worker(clock=now) as bench:
        call = bench.stub.Prefill(prefill_request())
        engine_id = await bench.submitted()
        for _ in range(3):
            now.advance(1.0)
            bench.link.say(Frame(load=EngineLoad(waiting_prefill_tokens=100)))
            assert await next_kind(call) == "progress"
        now.advance(1.0)
        bench.link.live()
        assert (await call.read()).progress.waiting_prefill_tokens == 100
        bench.link.say(Frame(started=[Started(engine_id, 4)]))
        assert await next_kind(call) == "accepted"
        now.advance(1.0)
        bench.link.say(Frame(places=[QueuePlace(engine_id, 70)]))
        assert (await call.read()).progress.in_long_step is False
        now.advance(1.0)
        bench.link.live(LifeSign.LONG_STEP)  # it says nothing and uses its processor
        word = (await call.read()).progress
        assert (word.tokens_ahead, word.in_long_step) == (70, True)
        bench.compute_prompt(engine_id)
        assert await next_kind(call) == "first_token"
        assert await next_kind(call) == "blocks_ready"
        assert await next_kind(call) == "done"
        call.cancel()


async def test_a_server_says_nothing_for_an_engine_that_says_nothing():
    now = ManualClock()
    async with running_prefill_worker(clock=now) as bench:
        call = bench.stub.Prefill(prefill_request())
        await bench.submitted()
        hearing = asyncio.create_task(next_kind(call))
        handshake = handoff_pb2.HandshakeRequest(pairing=pairing_to_wire(PAIRING))
        for _ in range(10):
            now.advance(100.0)
            await bench.stub.Handshake(handshake)  # the server is well
        assert not hearing.done()
        bench.link.live()
        assert await hearing == "progress"
        call.cancel()


async def test_progress_never_piles_up_before_a_reader_that_is_slow():
    now = ManualClock()
    export = ExportStream(first_block=0, num_blocks=2, num_choices=1, clock=now)
    for _ in range(1000):
        now.advance(1.0)
        export.engine_lives(EngineLoad(), LifeSign.WORD)
    export.receive(Started("a", 0))
    kinds = [(await export.next_message()).WhichOneof("event") for _ in range(2)]
    assert kinds == ["progress", "accepted"]


async def test_a_reader_that_leaves_while_the_prompt_is_queued_releases_it(bench):
    call = bench.stub.Prefill(prefill_request())
    engine_id = await bench.submitted()
    call.cancel()
    assert (await bench.link.wait_for(ReleaseExport)).request_id == engine_id


async def test_a_broken_connection_releases_the_blocks(bench):
    call = bench.stub.Prefill(prefill_request())
    engine_id = await bench.submitted()
    bench.compute_prompt(engine_id)
    await read_until_done(call)
    await bench.channel.close()
    assert (await bench.link.wait_for(ReleaseExport)).request_id == engine_id


async def test_the_deadline_of_the_call_releases_the_blocks(bench):
    call = bench.stub.Prefill(prefill_request(), timeout=2.0)
    engine_id = await bench.submitted()
    assert isinstance(error_of(await failure_of(call)), DeadlineExceeded)
    assert (await bench.link.wait_for(ReleaseExport)).request_id == engine_id


async def test_a_server_that_stops_releases_the_blocks(bench):
    call = bench.stub.Prefill(prefill_request())
    engine_id = await bench.submitted()
    bench.compute_prompt(engine_id)
    await read_until_done(call)
    await bench.server.stop(0)
    assert (await bench.link.wait_for(ReleaseExport)).request_id == engine_id


async def test_another_incarnation_is_refused(bench):
    call = bench.stub.Prefill(prefill_request(incarnation="incarnation-0"))
    error = error_of(await failure_of(call))
    assert isinstance(error, WorkerLost)
    assert "incarnation-0" in error.message
    assert KEY.incarnation in error.message


async def test_a_draining_worker_refuses_new_prompts_and_keeps_exports_alive(bench):
    running = bench.stub.Prefill(prefill_request())
    engine_id = await bench.submitted()
    bench.worker.lifespan.advance(ProcessState.DRAINING)
    refused = bench.stub.Prefill(prefill_request(request_id="req-2"))
    assert isinstance(error_of(await failure_of(refused)), Draining)
    bench.compute_prompt(engine_id)
    await read_until_done(running)
    assert not await bench.worker.lifespan.wait_idle(0.05)
    running.cancel()
    assert await bench.worker.lifespan.wait_idle(5)


async def test_what_the_engine_refuses_reaches_the_reader_as_its_own_error(bench):
    call = bench.stub.Prefill(prefill_request())
    engine_id = await bench.submitted()
    code = status_of(OutOfBlocks("")).code
    ended = RequestEnded(
        request_id=engine_id,
        usage=Usage(8, 0, 0),
        error_code=code,
        error_message="9 blocks, the pool has 8",
    )
    bench.link.say(Frame(ended=[ended]))
    error = error_of(await failure_of(call))
    assert isinstance(error, OutOfBlocks)
    assert error.message == "9 blocks, the pool has 8"


async def test_an_engine_that_dies_ends_every_stream_with_worker_lost(bench):
    calls = [bench.stub.Prefill(prefill_request(request_id=f"req-{i}")) for i in range(3)]
    await bench.submitted(3)
    bench.link.die("SIGKILL")
    for call in calls:
        error = error_of(await failure_of(call))
        assert isinstance(error, WorkerLost)
        assert "SIGKILL" in error.message
    assert bench.engine.num_requests == 0


async def test_the_first_token_waits_for_every_choice(bench):
    request = prefill_request()
    request.sampling.n = 2
    call = bench.stub.Prefill(request)
    engine_id = await bench.submitted()
    bench.link.say(
        Frame(started=[Started(engine_id, 0)], tokens=[TokenEvent(engine_id, 1, GeneratedToken(5))])
    )
    bench.link.say(Frame(tokens=[TokenEvent(engine_id, 0, GeneratedToken(6))]))
    async for event in call:
        if event.WhichOneof("event") == "first_token":
            break
    tokens = [(item.choice, item.token.token_id) for item in event.first_token.tokens]
    assert tokens == [(0, 6), (1, 5)]
    call.cancel()


async def test_two_streams_with_one_request_id_do_not_meet_in_the_engine(bench):
    first = bench.stub.Prefill(prefill_request())
    one = await bench.submitted(1)
    second = bench.stub.Prefill(prefill_request())
    two = await bench.submitted(2)
    assert one != two
    first.cancel()
    assert (await bench.link.wait_for(ReleaseExport)).request_id == one
    bench.compute_prompt(two)
    await read_until_done(second)
    second.cancel()


async def test_metrics_count_outcomes_and_stages(bench):
    call = bench.stub.Prefill(prefill_request())
    bench.compute_prompt(await bench.submitted())
    await read_until_done(call)
    call.cancel()
    assert await bench.worker.lifespan.wait_idle(5)
    registry = bench.worker.metrics.registry
    done = registry.get_sample_value("splitserve_worker_handoffs_total", {"outcome": "done"})
    hits = registry.get_sample_value("splitserve_worker_prefix_hit_tokens_total")
    stages = registry.get_sample_value(
        "splitserve_worker_ttft_stage_seconds_count", {"stage": "prefill"}
    )
    assert (done, hits, stages) == (1, 4, 1)


@pytest.mark.parametrize("first_block", [0, 2], ids=["blocks-wanted", "no-blocks-wanted"])
async def test_a_first_token_that_is_the_last_one_ends_the_stream_without_a_failure(
    bench, first_block
):
    call = bench.stub.Prefill(prefill_request(first_block=first_block))
    bench.end_with_first_token(await bench.submitted())
    events = [event async for event in call]
    assert [event.WhichOneof("event") for event in events] == ["accepted", "first_token", "done"]
    assert events[1].first_token.is_last
    assert await bench.worker.lifespan.wait_idle(5)
    registry = bench.worker.metrics.registry
    outcomes = [
        (sample.labels["outcome"], sample.value)
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name in ("splitserve_worker_requests_total", "splitserve_worker_handoffs_total")
    ]
    assert sorted(outcomes) == [("done", 1), ("ok", 1)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"token_ids": []}, "invalid_request"),
        ({"token_ids": [1] * 129}, "context_length_exceeded"),
        ({"token_ids": [1] * 2_000_000}, "context_length_exceeded"),
        ({"request_id": "x" * 1_000_000}, "invalid_request"),
        ({"sampling": many_biases()}, "invalid_request"),
        ({"incarnation": "another " * 10_000}, "wrong_worker"),
    ],
    ids=["no-prompt", "too-long", "two-million-tokens", "huge-id", "biases", "incarnation"],
)
async def test_what_cannot_be_served_is_refused_before_the_engine_sees_it(bench, change, code):
    error = error_of(await failure_of(bench.stub.Prefill(prefill_request(**change))))
    assert status_of(error).code == code
    assert len(error.message) < 500
    assert not bench.link.told(Submit)
    call = bench.stub.Prefill(prefill_request())
    bench.compute_prompt(await bench.submitted())
    await read_until_done(call)
    call.cancel()


async def test_an_export_that_cannot_be_submitted_leaves_nothing_behind(bench, monkeypatch):
    def full(*request: object) -> None:
        raise MemoryError("no room for one more")

    monkeypatch.setattr(bench.engine, "submit", full)
    await failure_of(bench.stub.Prefill(prefill_request()))
    assert not bench.service._exports


def fields_below(message: Descriptor) -> set[str]:
    """Names of all fields that a sender may fill."""
    below = [field.message_type for field in message.fields if field.message_type is not None]
    return {field.name for field in message.fields}.union(*map(fields_below, below))


def test_no_call_to_an_exporter_names_blocks_so_none_can_be_another_s():
    """A reader's hold on blocks is its stream, and what it is told there is good nowhere else."""
    service = handoff_pb2.DESCRIPTOR.services_by_name["PrefillWorker"]
    said = set().union(*(fields_below(method.input_type) for method in service.methods))
    told = fields_below(handoff_pb2.BlocksReady.DESCRIPTOR)
    assert {"incarnation", "token_ids", "first_block"} <= said
    assert not said & (told | {"pool_address", "agent_metadata"})
