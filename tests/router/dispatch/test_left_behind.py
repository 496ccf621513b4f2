"""What a request counts on in its workers' caches, and what is left of that when it is over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from msgspec import structs

from cluster.errors import InternalError, WorkerLost
from router.control.plane import FleetPlane
from router.dispatch.stream import StreamEvent
from tests.router.dispatch_bench import PROMPT, collect, found, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, error_frame, tokens_frame, until
from tests.router.planes import prefill_member

Sent = asyncio.Task[list[StreamEvent]]


@asynccontextmanager
async def sent(plane: FleetPlane, worker: FakeDecodeWorker) -> AsyncIterator[Sent]:
    """r1 has reached its worker."""
    task = asyncio.create_task(collect(plane, request("r1", max_tokens=9)))
    await until(lambda: bool(worker.submitted))
    yield task


async def test_requests_that_fail_leave_nothing() -> None:
    worker = FakeDecodeWorker(fails_with="internal_error")
    async with router(worker) as plane:
        for request_id in ("r1", "r2"):
            with pytest.raises(InternalError):
                await collect(plane, structs.replace(request(request_id), token_ids=PROMPT))
        assert found(plane, request("r1")) == {}
        assert plane.index.num_blocks == 0


async def test_a_request_that_fails_in_the_middle_of_its_answer_leaves_nothing() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane, sent(plane, worker) as answer:
        worker.send(tokens_frame("r1", 5, 6))
        worker.send(error_frame("r1", "internal_error", "the step failed"))
        with pytest.raises(InternalError):
            await answer
        assert plane.index.num_blocks == 0


@pytest.mark.parametrize("has_events, num_found", [(False, 2), (True, 0)])
async def test_a_client_that_leaves_an_answer_has_left_its_prompt_where_no_event_says_so(
    has_events: bool, num_found: int
) -> None:
    worker = FakeDecodeWorker()
    async with worker, router() as plane:
        pub, replay = await worker.start_events() if has_events else ("", "")
        await plane.store.join(worker.member(kv_events_address=pub, kv_replay_address=replay))
        await until(lambda: plane.why_not_ready() is None)
        async with aclosing(plane.source.generate(request("r1", max_tokens=9))) as events:
            answer = asyncio.ensure_future(anext(events))
            await until(lambda: bool(worker.submitted))
            worker.send(tokens_frame("r1", 5))
            await answer
        await until(lambda: worker.cancelled == ["r1"])
        assert found(plane, request("r1")).get("decode-1", 0) == num_found


async def test_a_client_that_leaves_before_the_first_token_leaves_nothing() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane, sent(plane, worker) as answer:
        assert found(plane, request("r1")) == {"decode-1": 2}
        answer.cancel()
        await until(lambda: worker.cancelled == ["r1"])
        assert plane.index.num_blocks == 0


async def test_a_request_that_ends_after_its_worker_was_restarted_leaves_nothing() -> None:
    worker = FakeDecodeWorker()
    async with router(worker, continue_streams=False) as plane, sent(plane, worker) as answer:
        worker.send(tokens_frame("r1", 5))
        await until(lambda: plane.fleet.members[0].slow_start.is_proven)
        await plane.store.join(worker.member(incarnation="i2"))
        with pytest.raises(WorkerLost):
            await answer
        assert found(plane, request("r1")) == {}
        await until(lambda: plane.index.num_blocks == 0)


@pytest.mark.parametrize("computer", ["prefill-1", "prefill-2"])
async def test_whoever_computed_the_prompt_is_guessed_at_and_nobody_else_who_was_proposed(
    computer: str,
) -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    worker.timing = {"prefill_worker": computer}
    async with router(worker) as plane:
        for name in ("prefill-1", "prefill-2"):
            await plane.store.join(prefill_member(name))
        long = structs.replace(request("r1"), token_ids=list(range(40)))
        await collect(plane, long)
        assert len(worker.submitted[0].prefill) == 2
        assert found(plane, long) == {computer: 10, "decode-1": 10}
