"""When requests were where, as the router kept it and as an operator reads it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from msgspec import structs

from protos import router_admin_pb2, worker_pb2
from router.control.plane import FleetPlane
from router.control.trace_message import traces_of
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    ended_frame,
    error_frame,
    tokens_frame,
    until,
)


def told(plane: FleetPlane, **asked: object) -> list[router_admin_pb2.RequestTrace]:
    wanted = router_admin_pb2.TraceRequest(**asked)  # type: ignore[arg-type]
    return list(traces_of(plane.decisions, wanted, plane._world.clock))


def stages_frame(request_id: str, **stages: float) -> worker_pb2.WorkerFrame:
    """A first token, with what the worker says of the prompt."""
    frame = tokens_frame(request_id, 100)
    frame.computed.add(request_id=request_id, stages=worker_pb2.PromptStages(**stages))
    return frame


async def test_the_stamps_of_a_request_are_in_the_order_of_its_life() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        await collect(
            plane, structs.replace(request(), request_id="one-0123456789ab", tenant="acme")
        )
        (trace,) = told(plane, request_id="one")
        assert trace.arrival.tenant == "acme" and trace.reason == "no_prefill_worker"
        assert trace.usage.completion_tokens == 2 and trace.prompt_tokens == 9
        (leg,) = trace.legs
        assert (leg.decode_worker, leg.prefill_worker, leg.end) == ("decode-1", "", "")
        stamps = [trace.read_ms, trace.admitted_ms, leg.sent_ms, leg.first_token_ms]
        stamps += [trace.first_token_ms, trace.ended_ms]
        assert stamps == sorted(stamps) and stamps[0] >= 0
        assert leg.HasField("ended_ms") and not leg.HasField("stages")


async def test_what_the_worker_says_last_of_the_prompt_is_kept() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        task = asyncio.create_task(collect(plane, request("a-0123456789ab")))
        await until(lambda: worker.submitted)
        worker.send(stages_frame("a-0123456789ab", said_ms=5.0, first_token_ms=4.0))
        await until(lambda: told(plane, request_id="a")[0].legs[0].HasField("stages"))
        assert told(plane, request_id="a")[0].legs[0].stages.first_token_ms == 4.0
        assert not told(plane, request_id="a")[0].HasField("ended_ms")
        assert told(plane) == []  # it runs
        end = ended_frame("a-0123456789ab", made=2)
        end.ended[0].stages.CopyFrom(worker_pb2.PromptStages(said_ms=9.0, last_block_ms=8.0))
        worker.send(tokens_frame("a-0123456789ab", 101, last=True))
        worker.send(end)
        await task
        (trace,) = told(plane)
        assert trace.legs[0].stages.last_block_ms == 8.0


async def test_a_request_that_goes_on_elsewhere_has_a_leg_for_each_worker() -> None:
    workers = FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")
    async with router(*workers) as plane:
        task = asyncio.create_task(collect(plane, request("a-0123456789ab")))
        await until(lambda: workers[0].submitted or workers[1].submitted)
        first, second = workers if workers[0].submitted else workers[::-1]
        second.answer_at_once = True
        first.send(error_frame("a-0123456789ab", "internal_error", "as the test says"))
        await task
        (trace,) = told(plane, request_id="a")
        assert [(leg.decode_worker, leg.end) for leg in trace.legs] == [
            (first.worker_id, "internal_error"),
            (second.worker_id, ""),
        ]
        assert trace.legs[0].ended_ms <= trace.legs[1].sent_ms


async def test_a_client_that_leaves_ends_its_trace() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        async with aclosing(plane.source.generate(request("a-0123456789ab"))) as events:
            task = asyncio.create_task(anext(events))
            await until(lambda: worker.submitted)
            worker.send(tokens_frame("a-0123456789ab", 100))
            await task
        (trace,) = told(plane)
        assert trace.arrival.end == "cancelled" and trace.legs[0].end == "cancelled"
        assert trace.ended_ms >= trace.first_token_ms and not trace.HasField("usage")


async def test_the_slowest_come_first_and_since_leaves_out_the_others() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        for number, name in enumerate(("a-0123456789ab", "b-0123456789ab", "c-0123456789ab")):
            task = asyncio.create_task(collect(plane, request(name)))
            await until(lambda number=number: len(worker.submitted) == number + 1)
            worker.send(tokens_frame(name, 100, 101, last=True))
            worker.send(ended_frame(name, made=2))
            await task
            arrival = plane.decisions.came_as(name[0])[0]
            arrival.course.first_token_s = arrival.course.arrived_s + (5, 9, 1)[number]
        assert [trace.request_id[0] for trace in told(plane)] == ["b", "a", "c"]
        assert [trace.request_id[0] for trace in told(plane, slowest=2)] == ["b", "a"]
        plane.decisions.came_as("b")[0].course.arrived_s -= 1000
        assert [trace.request_id[0] for trace in told(plane, since_s=500.0)] == ["a", "c"]


async def test_an_unknown_id_has_no_trace() -> None:
    async with router(FakeDecodeWorker()) as plane:
        assert told(plane, request_id="nobody") == []
