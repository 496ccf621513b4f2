"""A decode worker that lives, and takes requests, and makes no token of any."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from msgspec import structs

from cluster.errors import DeadlineExceeded
from cluster.process.background import cancel
from cluster.sampling import SamplingParams
from protos import worker_pb2
from router.control.plane import FleetPlane
from router.dispatch.stream import Completed, RoutedRequest, StreamEvent
from router.dispatch.time_limits import DefaultTimes, NothingCame
from router.fleet.member import FleetMember
from router.fleet.standstill import Standstill
from tests.router.dispatch_bench import collect, is_idle, outcome, request, router
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    Frame,
    ended_frame,
    scored_frame,
    tokens_frame,
    until,
)
from tests.router.planes import prefill_member

Handed = tuple[FleetPlane, FakeDecodeWorker, asyncio.Task[list[StreamEvent]]]
PATIENT_S, WAIT_S, BRIEF_S = 60.0, 0.4, 0.15


def waiting(
    request_id: str = "r1",
    *,
    first_token_s: float = WAIT_S,
    between_tokens_s: float = BRIEF_S,
    asked_s: float | None = None,
) -> RoutedRequest:
    times = DefaultTimes(first_token_s=first_token_s, between_tokens_s=between_tokens_s)
    asked = structs.replace(request(max_tokens=50), request_id=request_id)
    return structs.replace(asked, limits=times.limits(time.monotonic(), asked_s))


def member(plane: FleetPlane, worker: FakeDecodeWorker) -> FleetMember:
    [item] = [item for item in plane.fleet.members if item.key.worker_id == worker.worker_id]
    return item


def is_blamed(plane: FleetPlane, worker: FakeDecodeWorker) -> bool:
    return bool(member(plane, worker).cooldown._num_failures)


def standstill(plane: FleetPlane, worker: FakeDecodeWorker) -> Standstill:
    judged = member(plane, worker).standstill
    assert judged is not None
    return judged


@asynccontextmanager
async def silent_then_good() -> AsyncIterator[tuple[FleetPlane, FakeDecodeWorker]]:
    """The request of the block meets the silent one first: the other joins while it waits."""
    silent, good = FakeDecodeWorker("decode-0"), FakeDecodeWorker("decode-1", answer_at_once=True)
    async with good, router(silent) as plane:
        await plane.store.join(good.member())
        await until(lambda: all(not item.is_cut_off for item in plane.fleet.members))
        for item in plane.fleet.members:
            prefer(item, item.key.worker_id == "decode-0")
        yield plane, silent


def prefer(item: FleetMember, is_preferred: bool) -> None:
    """The other one has much to do."""
    item.pending_prefill_tokens = 0 if is_preferred else 100_000


async def test_a_request_that_a_silent_decode_worker_keeps_is_answered_by_another_one() -> None:
    async with silent_then_good() as (plane, silent):
        events = await collect(plane, waiting())
        assert isinstance(events[-1], Completed)
        assert [submit.request_id for submit in silent.submitted] == ["r1"]
        assert is_blamed(plane, silent)
        await until(lambda: silent.cancelled == ["r1"])


async def test_it_gets_as_much_time_there_as_it_had_and_a_third_worker_is_not_tried() -> None:
    workers = [FakeDecodeWorker(f"decode-{number}") for number in range(3)]
    async with router(*workers) as plane:
        began_s = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="no token came within 0.8"):
            await collect(plane, waiting())
        assert time.monotonic() - began_s >= 2 * WAIT_S
        assert sorted(len(worker.submitted) for worker in workers) == [0, 1, 1]
        assert outcome(plane, "deadline_exceeded") == 1
        assert is_idle(plane)


async def test_a_worker_that_makes_tokens_of_others_has_a_long_queue_and_is_not_to_blame() -> None:
    busy, other = FakeDecodeWorker("decode-0"), FakeDecodeWorker("decode-1")
    async with router(busy) as plane:
        streaming = asyncio.create_task(collect(plane, request("streams", max_tokens=900)))
        await until(lambda: bool(busy.submitted))
        kept = asyncio.create_task(collect(plane, waiting(first_token_s=1.5, between_tokens_s=1.0)))
        await until(lambda: len(busy.submitted) == 2)
        await other.start()
        await plane.store.join(other.member())
        while not kept.done():
            busy.send(tokens_frame("streams", 5))
            await asyncio.wait((kept,), timeout=BRIEF_S / 10)
        with pytest.raises(DeadlineExceeded):
            await kept
        assert not other.submitted and not is_blamed(plane, busy)
        busy.send(tokens_frame("streams", 6, last=True))
        busy.send(ended_frame("streams"))
        await streaming
    await other.stop()


MANY = 30
"""Of requests: on a busy machine some of them see their own loop stand, and judge nobody."""


async def test_a_clients_own_deadline_is_final_and_the_worker_that_stands_is_noted() -> None:
    async with silent_then_good() as (plane, silent):
        sent: list[str] = []
        while not is_blamed(plane, silent) and len(sent) < MANY:
            sent.append(f"r{len(sent)}")
            with pytest.raises(DeadlineExceeded, match="deadline of 0.4 s passed"):
                await collect(plane, waiting(sent[-1], asked_s=WAIT_S))
        assert is_blamed(plane, silent)
        assert [submit.request_id for submit in silent.submitted] == sent
        assert plane.registry.get_sample_value("splitserve_retries_total") == 0
        assert outcome(plane, "deadline_exceeded") == len(sent)


async def test_of_many_requests_with_deadlines_of_their_own_a_silent_worker_meets_few() -> None:
    """While the other is busy the silent one is idle: by load alone it looks best."""
    silent, good = FakeDecodeWorker("decode-0"), FakeDecodeWorker("decode-1", answer_at_once=True)
    async with router(silent, good) as plane:

        async def ask(name: str) -> None:
            with suppress(DeadlineExceeded):
                await collect(plane, waiting(name, asked_s=WAIT_S))

        for wave in range(MANY):
            await asyncio.gather(*(ask(f"w{wave}-{number}") for number in range(4)))
        assert len(silent.submitted) < MANY / 2, "one in every wave, were it never left alone"
        assert outcome(plane, "ok") == 4 * MANY - len(silent.submitted)


async def test_deadlines_that_are_shorter_than_a_tokens_limit_add_up() -> None:
    async with silent_then_good() as (plane, silent):
        while not is_blamed(plane, silent) and len(silent.submitted) < MANY:
            name = f"r{len(silent.submitted)}"
            with pytest.raises(DeadlineExceeded):
                await collect(plane, waiting(name, between_tokens_s=1.0, asked_s=BRIEF_S))
        assert is_blamed(plane, silent)


async def test_a_client_that_leaves_has_seen_its_worker_stand() -> None:
    async with silent_then_good() as (plane, silent):
        left = asyncio.create_task(collect(plane, waiting(first_token_s=PATIENT_S)))
        await until(lambda: standstill(plane, silent).has_lasted(BRIEF_S))
        await cancel([left])
        assert is_blamed(plane, silent)


async def test_a_client_that_leaves_a_loop_that_stood_has_seen_nothing() -> None:
    async with silent_then_good() as (plane, silent):
        left = asyncio.create_task(collect(plane, waiting(asked_s=PATIENT_S)))
        await until(lambda: bool(silent.submitted))
        time.sleep(3 * BRIEF_S)  # the loop stands; nobody knows yet what has arrived
        await cancel([left])
        assert not is_blamed(plane, silent)


async def test_a_worker_that_has_had_the_request_for_a_moment_is_not_to_blame() -> None:
    """It has waited elsewhere: in the queue of the router."""
    async with silent_then_good() as (plane, silent):
        with pytest.raises(DeadlineExceeded):
            await collect(plane, waiting(between_tokens_s=PATIENT_S))
        assert not is_blamed(plane, silent)


async def test_a_stream_that_stands_still_with_all_others_is_held_against_its_worker() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        running = asyncio.create_task(collect(plane, waiting(first_token_s=PATIENT_S)))
        await until(lambda: bool(worker.submitted))
        worker.send(tokens_frame("r1", 5))
        with pytest.raises(DeadlineExceeded, match="no token came for 0.15 s"):
            await running
        assert is_blamed(plane, worker)


@asynccontextmanager
async def begun_at_one_of_two(*, first_token_s: float, **options: int) -> AsyncIterator[Handed]:
    """Both are silent, but for one token; the other worker is the block's."""
    workers = [FakeDecodeWorker("decode-0"), FakeDecodeWorker("decode-1")]
    async with router(*workers, **options) as plane:
        answer = asyncio.create_task(collect(plane, waiting(first_token_s=first_token_s)))
        await until(lambda: any(worker.submitted for worker in workers))
        other, had = sorted(workers, key=lambda worker: len(worker.submitted))
        had.send(tokens_frame("r1", 5))
        yield plane, other, answer


async def test_an_answer_that_moved_and_got_nothing_ends_with_the_wait_there() -> None:
    """The whole of it, from its arrival, is no limit that anybody has set."""
    async with begun_at_one_of_two(first_token_s=2.0) as (plane, second, answer):
        with pytest.raises(
            DeadlineExceeded,
            match=r"no token came for 2 s from the worker that the answer went on with; raise "
            "--default-timeout-s",
        ):
            await answer
        [submit] = second.submitted
        assert [list(begun.token_ids) for begun in submit.resume] == [[5]]
        assert outcome(plane, "deadline_exceeded") == 1


async def test_where_answers_may_not_go_on_one_whose_worker_stands_ends_with_the_deadline() -> None:
    options = {"continue_streams": False}
    async with begun_at_one_of_two(first_token_s=PATIENT_S, **options) as (plane, other, answer):
        with pytest.raises(DeadlineExceeded, match="no token came for 0.15 s"):
            await answer
        assert not other.submitted
        assert outcome(plane, "deadline_exceeded") == 1


Progress = Callable[[int], Frame]


def less_to_compute(count: int) -> Frame:
    load = worker_pb2.EngineLoad(
        waiting_prefill_tokens=100_000 - count, waiting_prompts=1, total_blocks=99
    )
    return Frame(load=load)


def another_token_scored(count: int) -> Frame:
    return scored_frame("r1", first_index=1 + count)


@pytest.mark.parametrize("progress", [less_to_compute, another_token_scored])
async def test_a_worker_that_computes_a_long_prompt_itself_is_not_to_blame(
    progress: Progress,
) -> None:
    """Its client gives up: that its worker has made no token says nothing."""
    async with silent_then_good() as (plane, computes):
        scores = SamplingParams(max_tokens=50, seed=7, prompt_logprobs=0)
        asked = waiting(between_tokens_s=WAIT_S, asked_s=4 * WAIT_S)
        asked = structs.replace(asked, sampling=scores, token_ids=list(range(400)))
        answer = asyncio.create_task(collect(plane, asked))
        await until(lambda: bool(computes.submitted))
        count = 0
        while not answer.done():
            computes.send(progress(count := count + 1))
            await asyncio.wait((answer,), timeout=WAIT_S / 20)
        with pytest.raises(DeadlineExceeded):
            await answer
        assert count > 1 and not is_blamed(plane, computes)


@asynccontextmanager
async def handed_over(**limits: float) -> AsyncIterator[Handed]:
    """A request whose prompt a prefill worker computes, sent to the decode worker of the block."""
    async with silent_then_good() as (plane, silent):
        await plane.store.join(prefill_member())
        asked = structs.replace(waiting(**limits), token_ids=list(range(400)))
        answer = asyncio.create_task(collect(plane, asked))
        await until(lambda: bool(silent.submitted))
        assert silent.submitted[0].prefill
        yield plane, silent, answer


def receives(num_requests: int) -> Frame:
    return Frame(load=worker_pb2.EngineLoad(num_leases=num_requests, total_blocks=99))


async def test_a_slow_prefill_is_not_held_against_the_worker_that_waits_for_it() -> None:
    async with handed_over() as (plane, waits, answer):
        waits.send(receives(1))
        with pytest.raises(DeadlineExceeded) as caught:
            await answer
        assert not isinstance(caught.value, NothingCame)
        assert not is_blamed(plane, waits)
        assert plane.registry.get_sample_value("splitserve_retries_total") == 0


async def test_a_worker_that_never_asks_for_a_prompt_stands_and_another_one_does() -> None:
    async with handed_over() as (plane, silent, answer):
        assert isinstance((await answer)[-1], Completed)
        assert is_blamed(plane, silent)


async def test_a_worker_that_hands_on_the_first_token_and_makes_no_other_stands() -> None:
    """It may receive other prompts meanwhile, and hand on their first tokens. Another goes on."""
    async with handed_over(first_token_s=PATIENT_S) as (plane, silent, answer):
        silent.send(receives(1))
        silent.send(tokens_frame("r1", 100))
        *tokens, completed = await answer
        assert isinstance(completed, Completed)
        assert [t.token_id for e in tokens for t in e.tokens] == list(range(100, 150))
        assert is_blamed(plane, silent)
        cause = {"cause": "deadline_exceeded"}
        assert plane.registry.get_sample_value("splitserve_streams_continued_total", cause) == 1


async def test_a_good_end_counts_where_one_token_is_all_that_is_asked() -> None:
    """No token is ever the decode worker's own; it is judged by what came after the last end."""
    async with handed_over(first_token_s=PATIENT_S, between_tokens_s=PATIENT_S) as handed:
        plane, worker, answer = handed
        began_s = time.monotonic()
        worker.send(tokens_frame("r1", 5, last=True))
        worker.send(ended_frame("r1"))
        await answer
        assert not standstill(plane, worker).has_lasted(time.monotonic() - began_s)
