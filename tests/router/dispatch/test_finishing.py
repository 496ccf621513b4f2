"""Stop strings: choices that the reader ends, and the worker's last word on them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from cluster.generation import Timing
from cluster.sampling import SamplingParams
from router.control.plane import FleetPlane
from router.dispatch import running_request
from router.dispatch.stream import (
    ChoiceTokens,
    Completed,
    RoutedRequest,
    StreamEvent,
)
from router.text.choice_count import new_counts
from tests.router.dispatch_bench import is_idle, outcome, request, router
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    ended_frame,
    error_frame,
    tokens_frame,
    until,
)
from tests.router.planes import prefill_member


class Reader:
    """Takes the events of one request, and stops choices as a front does."""

    def __init__(self, plane: FleetPlane, asked: RoutedRequest) -> None:
        self.counts = new_counts(asked.sampling.n)
        self._events = plane.source.generate(asked, self.counts)
        self.tokens: dict[int, list[int]] = {}

    async def tokens_come(self) -> None:
        """Waits for the next tokens."""
        event = await self._next()
        assert isinstance(event, ChoiceTokens)
        self.tokens.setdefault(event.choice, []).extend(t.token_id for t in event.tokens)

    async def completed(self) -> Completed:
        """The last event, within less time than a worker gets; and nothing after it."""
        async with asyncio.timeout(5):
            event = await self._next()
            assert isinstance(event, Completed)
            assert [later async for later in self._events] == []
        return event

    def stop(self, choice: int, *, num_tokens: int) -> None:
        """The first `num_tokens` of this choice are enough."""
        count = self.counts[choice]
        count.take_back(count.num_tokens - num_tokens)
        count.stop()

    async def _next(self) -> StreamEvent:
        return await anext(self._events)


@asynccontextmanager
async def reading(worker: FakeDecodeWorker, n: int = 1) -> AsyncIterator[tuple[FleetPlane, Reader]]:
    """A request of `n` choices that has reached the worker and got tokens 5, 6 in each."""
    async with router(worker) as plane:
        asked = structs.replace(request(), sampling=SamplingParams(max_tokens=20, n=n, seed=1))
        reader = Reader(plane, asked)
        first = asyncio.ensure_future(reader.tokens_come())
        await until(lambda: bool(worker.submitted))
        worker.send(tokens_frame("r1", 5, 6))
        await first
        for choice in range(1, n):
            worker.send(tokens_frame("r1", 5, 6, choice=choice))
            await reader.tokens_come()
        yield plane, reader


def adds_up(timing: Timing) -> bool:
    stages = timing.queue_ms + timing.prefill_ms + timing.kv_ms + timing.decode_ms
    return timing.ttft_ms > 0 and timing.ttft_ms == pytest.approx(stages, abs=1e-6)


async def test_a_stopped_request_is_a_success_with_the_workers_usage_and_timing() -> None:
    worker = FakeDecodeWorker()
    async with reading(worker) as (plane, reader):
        reader.stop(0, num_tokens=1)
        await until(lambda: worker.finished == [("r1", 0)])
        worker.send(tokens_frame("r1", 7))  # was on its way
        worker.send(ended_frame("r1", prompt=9, made=3, cached=8, kv_bytes=64, queue_ms=0.01))
        completed = await reader.completed()
        usage, timing = completed.usage, completed.timing
        assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (9, 1, 8)
        assert timing.kv_bytes == 64 and timing.queue_ms >= 0.01 and adds_up(timing)
        assert reader.tokens == {0: [5, 6]}
        assert (outcome(plane, "ok"), outcome(plane, "cancelled")) == (1, 0)
        decision = plane.decisions.find("r1")
        assert decision is not None and decision.usage == usage
        assert is_idle(plane)
    assert worker.cancelled == []


async def test_one_stopped_choice_ends_at_the_worker_while_the_other_goes_on() -> None:
    worker = FakeDecodeWorker()
    async with reading(worker, n=2) as (plane, reader):
        reader.stop(1, num_tokens=2)
        reader.counts[1].stop()
        await until(lambda: worker.finished == [("r1", 1)])
        worker.send(tokens_frame("r1", 7, choice=1))
        worker.send(tokens_frame("r1", 8, last=True))
        await reader.tokens_come()
        worker.send(ended_frame("r1", made=6, cached=4))
        completed = await reader.completed()
        assert reader.tokens == {0: [5, 6, 8], 1: [5, 6]}
        assert (completed.usage.completion_tokens, completed.usage.cached_tokens) == (5, 4)
        assert is_idle(plane)
    assert worker.finished == [("r1", 1)]


async def test_a_stop_in_tokens_that_end_the_choice_anyway_needs_no_finish() -> None:
    worker = FakeDecodeWorker()
    async with reading(worker) as (_, reader):
        worker.send(tokens_frame("r1", 7, 8, last=True))
        await reader.tokens_come()
        reader.stop(0, num_tokens=3)
        worker.send(ended_frame("r1", made=4))
        assert (await reader.completed()).usage.completion_tokens == 3
    assert worker.finished == []


async def test_a_worker_that_dies_after_the_stop_does_not_take_the_answer_with_it() -> None:
    worker = FakeDecodeWorker()
    async with reading(worker) as (plane, reader):
        reader.stop(0, num_tokens=2)
        await worker.stop()
        completed = await reader.completed()
        assert (completed.usage.prompt_tokens, completed.usage.completion_tokens) == (9, 2)
        assert completed.timing.decode_worker == "decode-1" and adds_up(completed.timing)
        assert outcome(plane, "ok") == 1
        assert is_idle(plane)


async def test_a_worker_that_stays_silent_after_the_stop_is_waited_for_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_request, "FINISH_TIMEOUT_S", 0.05)
    worker = FakeDecodeWorker()
    async with reading(worker) as (plane, reader):
        reader.stop(0, num_tokens=2)
        assert adds_up((await reader.completed()).timing)
        await until(lambda: worker.cancelled == ["r1"])
        assert is_idle(plane)


async def test_an_error_before_the_last_choice_is_over_is_still_the_requests_error() -> None:
    worker = FakeDecodeWorker()
    async with reading(worker, n=2) as (plane, reader):
        reader.stop(0, num_tokens=2)
        worker.send(error_frame("r1", "internal_error", "step 9"))
        with pytest.raises(Exception, match="step 9"):
            await reader.completed()
        assert outcome(plane, "internal_error") == 1


@pytest.mark.parametrize("path", ["local", "handoff", "stop string"])
async def test_the_parts_add_up_to_ttft_whatever_way_a_request_went(path: str) -> None:
    worker = FakeDecodeWorker()
    told = {"queue_ms": 1.0, "prefill_ms": 7.0}
    if path == "handoff":
        told |= {"kv_ms": 2.0, "prefill_worker": "prefill-1", "kv_bytes": 64}
    async with reading(worker) as (plane, reader):
        await plane.store.join(prefill_member())
        if path == "stop string":
            reader.stop(0, num_tokens=2)
        else:
            worker.send(tokens_frame("r1", 7, last=True))
            await reader.tokens_come()
        worker.send(ended_frame("r1", prompt=9, made=3, cached=4, **told))
        completed = await reader.completed()
        assert adds_up(completed.timing)
        assert completed.timing.prefill_worker == told.get("prefill_worker", "")
        assert completed.usage.cached_tokens == 4
