"""Prompts that a prefill worker answers by itself, over its gRPC service and a scripted engine."""

import asyncio
import struct

import grpc
import pytest

from cluster.errors import InternalError, WorkerLost, status_of
from cluster.generation import Usage
from cluster.process.lifespan import ProcessState
from cluster.rpc import error_of
from cluster.tracing.context import context_to_wire
from engine.contract.commands import Cancel, PrefillMode, Submit
from engine.contract.messages import Frame, Pooled, RequestEnded, Started
from protos import handoff_pb2
from tests.kept_spans import CALLER, KeptSpans
from tests.prefill_worker.prefill_bench import KEY, Bench, running_prefill_worker

VALUES = struct.pack("<3f", 0.5, -0.25, 1.0)


@pytest.fixture
async def bench():
    async with running_prefill_worker(pooling="last") as running:
        yield running


def pool_request(**fields) -> handoff_pb2.PoolRequest:
    values = {
        "request_id": "req-1",
        "incarnation": KEY.incarnation,
        "pooling": "last",
        "token_ids": list(range(8)),
        "cache_root": bytes(16),
    }
    return handoff_pb2.PoolRequest(**values | fields)


def pooled_in(bench: Bench, engine_id: str) -> None:
    ended = RequestEnded(request_id=engine_id, usage=Usage(8, 0, 4), queue_ms=2.0, prefill_ms=30.0)
    bench.link.say(Frame(started=[Started(engine_id, 4, 2.0)]))
    bench.link.say(Frame(pooled=[Pooled(engine_id, VALUES)], ended=[ended]))


async def failure_of(call) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_a_prompt_is_answered_with_its_values_and_what_it_took(bench):
    call = bench.stub.Pool(pool_request(dimensions=3), timeout=20)
    engine_id = await bench.submitted()
    pooled_in(bench, engine_id)
    answer = await call
    assert answer.values == VALUES
    assert (answer.cached_tokens, answer.queue_ms, answer.prefill_ms) == (4, 2.0, 30.0)
    body = bench.link.told(Submit)[0].request
    assert (body.mode, body.dimensions, body.token_ids) == (PrefillMode.POOL, 3, list(range(8)))
    assert 0 < body.timeout_ms <= 21_000  # gRPC rounds what is left


async def test_the_adapter_that_is_to_compute_it_is_passed_on(bench):
    call = bench.stub.Pool(pool_request(adapter="a" * 32, owner=b"somebody, and more"), timeout=20)
    pooled_in(bench, await bench.submitted())
    await call
    request = bench.link.told(Submit)[0].request
    assert (request.adapter, request.owner) == ("a" * 32, b"somebody")


async def test_who_leaves_ends_the_work(bench):
    call = bench.stub.Pool(pool_request())
    engine_id = await bench.submitted()
    call.cancel()
    assert (await bench.link.wait_for(Cancel)).request_id == engine_id


async def test_a_deadline_ends_the_work(bench):
    failure = await failure_of(bench.stub.Pool(pool_request(), timeout=2.0))
    assert failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await bench.link.wait_for(Cancel)


async def test_what_the_engine_ends_it_with_is_told(bench):
    call = bench.stub.Pool(pool_request())
    code = status_of(InternalError("")).code
    bench.link.say(
        Frame(
            ended=[
                RequestEnded(
                    request_id=await bench.submitted(),
                    usage=Usage(8, 0, 0),
                    error_code=code,
                    error_message="no numbers",
                )
            ]
        )
    )
    error = error_of(await failure_of(call))
    assert isinstance(error, InternalError) and error.message == "no numbers"


async def test_an_engine_that_dies_loses_its_prompts(bench):
    call = bench.stub.Pool(pool_request())
    await bench.submitted()
    bench.link.die("signal SIGKILL")
    assert isinstance(error_of(await failure_of(call)), WorkerLost)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"incarnation": "another"}, "it restarted"),
        ({"pooling": "mean"}, "this worker has 'last'"),
        ({"pooling": ""}, "this worker has 'last'"),
        ({"token_ids": range(200)}, "the context is 128"),
        ({"request_id": "x" * 300}, "request_id characters"),
        ({"adapter": "../../etc"}, "32 hex digits"),
    ],
)
async def test_what_no_engine_should_see_is_refused_before_it(bench, fields, words):
    failure = await failure_of(bench.stub.Pool(pool_request(**fields)))
    assert words in failure.details()
    assert bench.link.told(Submit) == []


async def test_a_worker_that_does_not_pool_says_so():
    async with running_prefill_worker() as bench:
        failure = await failure_of(bench.stub.Pool(pool_request()))
        assert "this worker has 'none'" in failure.details()


async def test_a_worker_that_drains_takes_no_prompt(bench):
    bench.worker.lifespan.advance(ProcessState.DRAINING)
    failure = await failure_of(bench.stub.Pool(pool_request()))
    assert failure.code() is grpc.StatusCode.UNAVAILABLE
    assert bench.link.told(Submit) == []


async def test_a_traced_prompt_has_spans_of_its_queue_and_its_pooling():
    spans = KeptSpans()
    async with running_prefill_worker(pooling="last", tracing=spans) as bench:
        trace = context_to_wire(CALLER)
        call = bench.stub.Pool(pool_request(trace=trace))
        pooled_in(bench, await bench.submitted())
        await call
        async with asyncio.timeout(5):
            while len(spans.all) < 3:
                await asyncio.sleep(0)
    assert sorted(span.name for span in spans.all) == ["pool", "prefill worker", "queue"]
