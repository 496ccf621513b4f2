"""Beam searches whose decode worker is lost: another one does them over, and each answer is told
once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec import structs

from cluster.beam_search import BeamSearch
from cluster.errors import DeadlineExceeded, RequestGivenUp
from cluster.generation import EngineLoad, FinishReason
from cluster.identity import Role
from cluster.sampling import SamplingParams
from protos import generation_pb2, worker_pb2
from router.control.plane import FleetPlane
from router.dispatch.stream import ChoiceTokens, Completed, RoutedRequest, StreamEvent
from router.fairness.shares import ANSWER_WEIGHT
from router.tenants.priority import Priority
from router.text.choice_count import new_counts
from tests.router.dispatch_bench import PROMPT, collect, is_idle, outcome, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, Frame, error_frame, until

ANSWERS = ([11, 12, 13], [11, 14, 13])
"""Of the two best beams; the first token is what they have in common."""


def search(request_id: str = "r1") -> RoutedRequest:
    sampling = SamplingParams(max_tokens=3, seed=7, n=2, beams=BeamSearch(width=3))
    return structs.replace(request(request_id), sampling=sampling)


def begun(request_id: str = "r1", cached: int = 4) -> Frame:
    """The prompt is computed; the search is under way, and nothing is told of it."""
    timing = generation_pb2.Timing(queue_ms=70.0, prefill_ms=80.0)
    computed = worker_pb2.PromptComputed(request_id=request_id, cached_tokens=cached, timing=timing)
    return Frame(computed=[computed])


def searched(num_tokens: int, request_id: str = "r1") -> Frame:
    """It has come so far."""
    return Frame(searched=[worker_pb2.Searched(request_id=request_id, num_tokens=num_tokens)])


def found(worker_id: str, request_id: str = "r1") -> Frame:
    """All that a search tells."""
    frame = Frame()
    for choice, token_ids in enumerate(ANSWERS):
        frame.tokens.add(
            request_id=request_id,
            choice=choice,
            tokens=[generation_pb2.GeneratedToken(token_id=i, logprob=-0.5) for i in token_ids],
            finish_reason=generation_pb2.FINISH_REASON_LENGTH,
        )
    frame.ended.add(
        request_id=request_id,
        usage=generation_pb2.Usage(prompt_tokens=9, completion_tokens=6, cached_tokens=8),
        timing=generation_pb2.Timing(prefill_ms=2.0, decode_worker=worker_id),
    )
    return frame


def assert_told_once(events: list[StreamEvent], worker: FakeDecodeWorker) -> None:
    first, second, end = events
    for choice, event in enumerate((first, second)):
        assert isinstance(event, ChoiceTokens)
        assert (event.choice, event.finish_reason) == (choice, FinishReason.LENGTH)
        assert [token.token_id for token in event.tokens] == ANSWERS[choice]
    assert isinstance(end, Completed)
    assert (end.usage.completion_tokens, end.usage.cached_tokens) == (6, 8)
    assert end.timing.decode_worker == worker.worker_id


def dies(worker: FakeDecodeWorker) -> None:
    worker.end_session()


def loses_its_engine(worker: FakeDecodeWorker) -> None:
    worker.send(error_frame("r1", "worker_lost", "the engine process was killed by signal 9"))


def fails(worker: FakeDecodeWorker) -> None:
    worker.send(error_frame("r1", "internal_error", "the step failed"))


def stops(worker: FakeDecodeWorker) -> None:
    worker.send(error_frame("r1", "draining", "the worker stops"))


async def holder(*workers: FakeDecodeWorker) -> FakeDecodeWorker:
    """Who has the search."""
    await until(lambda: any(worker.submitted for worker in workers))
    return next(worker for worker in workers if worker.submitted)


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("how", [dies, loses_its_engine, fails, stops])
async def test_another_worker_does_a_search_over_from_its_prompt(
    how: Callable[[FakeDecodeWorker], None], has_begun: bool
) -> None:
    workers = [FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")]
    async with router(*workers) as plane:
        asked = asyncio.create_task(collect(plane, search()))
        first = await holder(*workers)
        if has_begun:
            first.send(begun())
        how(first)
        [second] = [worker for worker in workers if worker is not first]
        await until(lambda: bool(second.submitted))
        [again] = second.submitted
        assert list(again.token_ids) == PROMPT and not again.resume
        assert again.sampling == first.submitted[0].sampling
        second.send(begun(cached=8))
        second.send(found(second.worker_id))
        assert_told_once(await asked, second)
        await until(lambda: is_idle(plane))
        assert outcome(plane, "ok") == 1


async def test_what_a_lost_worker_says_late_of_a_search_is_not_heard() -> None:
    """It drains, its search is cut off there, and then its answers come after all."""
    workers = [FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")]
    async with router(*workers) as plane:
        asked = asyncio.create_task(collect(plane, search()))
        first = await holder(*workers)
        stops(first)
        first.send(found("decode-late"))
        [second] = [worker for worker in workers if worker is not first]
        await until(lambda: bool(second.submitted))
        second.send(found(second.worker_id))
        assert_told_once(await asked, second)


async def test_a_search_that_has_cost_two_workers_is_not_given_to_a_third() -> None:
    workers = [FakeDecodeWorker(f"decode-{number}") for number in range(3)]
    async with router(*workers) as plane:
        asked = asyncio.create_task(collect(plane, search()))
        for num_met in (1, 2):
            await until(lambda num=num_met: sum(len(w.submitted) for w in workers) == num)  # type: ignore[misc]
            [held] = [worker for worker in workers if worker.submitted and not worker.cancelled]
            held.send(begun())
            loses_its_engine(held)
            held.cancelled.append("lost")
        with pytest.raises(RequestGivenUp, match="decode workers were lost 2 times"):
            await asked
        assert sum(len(worker.submitted) for worker in workers) == 2
        await until(lambda: is_idle(plane))


async def test_a_search_goes_to_the_same_worker_once_its_session_is_open_again() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        asked = asyncio.create_task(collect(plane, search()))
        await until(lambda: bool(worker.submitted))
        worker.send(begun())
        dies(worker)
        await until(lambda: len(worker.submitted) == 2)
        worker.send(found(worker.worker_id))
        assert_told_once(await asked, worker)
        assert worker.num_sessions == 2


async def test_a_worker_that_drains_keeps_its_search_to_the_end() -> None:
    workers = [FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")]
    async with router(*workers) as plane:
        asked = asyncio.create_task(collect(plane, search()))
        first = await holder(*workers)
        first.send(begun())
        await plane.store.beat(first.member().key, EngineLoad(), draining=True)
        await until(lambda: len(plane.fleet.ready(Role.DECODE)) == 1)
        first.send(found(first.worker_id))
        assert_told_once(await asked, first)
        assert sum(len(worker.submitted) for worker in workers) == 1


async def test_the_client_s_deadline_covers_a_search_at_all_of_its_workers() -> None:
    workers = [FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")]
    async with router(*workers) as plane:
        limits = request(timeout_s=1.0).limits
        asked = asyncio.create_task(collect(plane, structs.replace(search(), limits=limits)))
        first = await holder(*workers)
        dies(first)
        with pytest.raises(DeadlineExceeded):
            await asked
        assert sum(len(worker.submitted) for worker in workers) == 2


def charged(plane: FleetPlane) -> float:
    """To the tenant, for all of its answers' tokens so far."""
    return plane.admission._line.shares_of(Priority.STANDARD.level)._counters.of("")


async def test_a_search_is_charged_as_it_goes_and_what_is_done_over_once() -> None:
    workers = [FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")]
    async with router(*workers) as plane:
        counts = new_counts(2)
        asked = asyncio.create_task(anext(plane.source.generate(search(), counts)))
        first = await holder(*workers)
        first.send(begun())
        first.send(searched(3))
        await until(lambda: counts[0].num_searched_tokens == 3)
        before = charged(plane)
        first.send(searched(6))
        await until(lambda: counts[0].num_searched_tokens == 6)
        assert charged(plane) == before + 3 * ANSWER_WEIGHT
        dies(first)
        [second] = [worker for worker in workers if worker is not first]
        await until(lambda: bool(second.submitted))
        second.send(searched(3))
        second.send(searched(1000))  # of nine that it was asked for
        await until(lambda: counts[0].num_searched_tokens == 9)
        assert charged(plane) == before + 6 * ANSWER_WEIGHT
        asked.cancel()
        await asyncio.wait([asked])
