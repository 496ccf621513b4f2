"""What has ended at its worker is settled there, however far its client has read."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from msgspec import structs

from cluster.errors import DeadlineExceeded, InternalError
from cluster.sampling import SamplingParams
from router.control.plane import FleetPlane
from router.dispatch.stream import Completed, PromptTokens, RoutedRequest, StreamEvent
from router.dispatch.time_limits import DefaultTimes
from tests.router.dispatch_bench import request, router
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    Frame,
    error_frame,
    scored_frame,
    tokens_frame,
    until,
)

Events = AsyncGenerator[StreamEvent, None]
BRIEF_S, PATIENT_S = 0.15, 60.0


@asynccontextmanager
async def begun(
    plane: FleetPlane, worker: FakeDecodeWorker, asked: RoutedRequest, first: Frame
) -> AsyncIterator[Events]:
    """A request whose client has read its first event, and reads no further by itself."""
    async with aclosing(plane.source.generate(asked)) as events:
        read = asyncio.ensure_future(anext(events))
        await until(lambda: bool(worker.submitted))
        worker.send(first)
        await read
        yield events


def is_settled(plane: FleetPlane) -> bool:
    """At the workers: nothing of any request counts there."""
    return all(
        (item.num_in_flight, item.in_flight_tokens, item.pending_prefill_tokens) == (0, 0, 0)
        for item in plane.fleet.members
    )


def num_places(plane: FleetPlane) -> int:
    """That are taken in the router."""
    return plane.admission.num_running


async def test_a_request_that_failed_is_settled_before_its_client_has_read_so_far() -> None:
    worker = FakeDecodeWorker()
    asked, first = request(max_tokens=9), tokens_frame("r1", 5)
    async with router(worker) as plane, begun(plane, worker, asked, first) as events:
        worker.send(error_frame("r1", "internal_error", "the step failed"))
        await until(lambda: is_settled(plane) and num_places(plane) == 0)
        [item] = plane.fleet.members
        assert item.standstill is not None and not item.standstill.has_turn
        with pytest.raises(InternalError, match="the step failed"):
            await anext(events)
        assert worker.cancelled == []


async def test_what_came_too_late_is_cancelled_before_its_client_has_read_so_far() -> None:
    worker = FakeDecodeWorker()
    times = DefaultTimes(first_token_s=PATIENT_S, between_tokens_s=BRIEF_S)
    asked = structs.replace(request(max_tokens=9), limits=times.limits(time.monotonic(), None))
    first = tokens_frame("r1", 5)
    async with router(worker) as plane, begun(plane, worker, asked, first) as events:
        await until(lambda: worker.cancelled == ["r1"] and is_settled(plane))
        with pytest.raises(DeadlineExceeded, match="no token came for"):
            await anext(events)


async def test_a_worker_that_sends_too_much_is_stopped_before_its_client_has_read_so_far() -> None:
    worker = FakeDecodeWorker()
    asked, first = request(max_tokens=2), tokens_frame("r1", 5)
    async with router(worker) as plane, begun(plane, worker, asked, first) as events:
        worker.send(tokens_frame("r1", 6, 7))
        await until(lambda: worker.cancelled == ["r1"] and is_settled(plane))
        with pytest.raises(InternalError, match="more tokens than"):
            await anext(events)


async def test_what_may_go_on_elsewhere_keeps_its_place_in_the_router() -> None:
    failing, good = FakeDecodeWorker("decode-0"), FakeDecodeWorker("decode-1", answer_at_once=True)
    asked, first = request(max_tokens=9), tokens_frame("r1", 100)
    async with good, router(failing) as plane, begun(plane, failing, asked, first) as events:
        await plane.store.join(good.member())
        await until(lambda: all(not item.is_cut_off for item in plane.fleet.members))
        failing.send(error_frame("r1", "internal_error", "the step failed"))
        await until(lambda: is_settled(plane))
        assert (num_places(plane), good.submitted) == (1, [])
        [failed] = [item for item in plane.fleet.members if item.key.worker_id == "decode-0"]
        assert plane.fleet.state_of(failed) == "resting", "though nobody has read its error"
        rest = [event async for event in events]
        assert isinstance(rest[-1], Completed)
        assert [len(item.token_ids) for item in good.submitted[0].resume] == [1]


async def test_what_may_be_tried_elsewhere_keeps_its_place_in_the_router() -> None:
    failing, good = FakeDecodeWorker("decode-0"), FakeDecodeWorker("decode-1", answer_at_once=True)
    scores = SamplingParams(max_tokens=2, seed=7, prompt_logprobs=0)
    asked, first = structs.replace(request(), sampling=scores), scored_frame("r1", first_index=1)
    async with good, router(failing) as plane, begun(plane, failing, asked, first) as events:
        await plane.store.join(good.member())
        await until(lambda: all(not item.is_cut_off for item in plane.fleet.members))
        failing.send(error_frame("r1", "internal_error", "the step failed"))
        await until(lambda: is_settled(plane))
        assert num_places(plane) == 1
        rest = [event async for event in events]
        assert isinstance(rest[-1], Completed)
        assert not any(isinstance(event, PromptTokens) for event in rest)
