"""A decode worker whose engine fails every request, beside one that works."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from msgspec import structs

from cluster.errors import InternalError, SplitserveError, status_of
from cluster.identity import Role
from router.control.plane import FleetPlane
from router.dispatch.attempts import ELSEWHERE
from router.dispatch.stream import ChoiceTokens, Completed, RoutedRequest
from router.dispatch.time_limits import NothingCame
from router.fleet.member import Assignment, FleetMember
from router.index.open_expectations import Expectation
from tests.router.dispatch_bench import collect, is_idle, outcome, request, router
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    ended_frame,
    error_frame,
    tokens_frame,
    until,
)
from tests.router.planes import prefill_member

BROKEN = "internal_error"


def broken(worker_id: str = "decode-broken") -> FakeDecodeWorker:
    return FakeDecodeWorker(worker_id, fails_with=BROKEN)


class Clock:
    """Of the fleet's rests: ten milliseconds pass with every request."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def broken_beside_good(
    clock: Clock,
) -> AsyncIterator[tuple[FleetPlane, FakeDecodeWorker, FakeDecodeWorker]]:
    bad, good = broken(), FakeDecodeWorker("decode-good", answer_at_once=True)
    async with bad, good, router() as plane:
        plane.fleet._time = replace(plane.fleet._time, rest_clock=clock)
        for worker in (bad, good):
            await plane.store.join(worker.member())
        plane.fleet._time = replace(plane.fleet._time, rest_clock=time.monotonic)
        await until(lambda: len(plane.fleet.ready(Role.DECODE)) == 2)
        yield plane, bad, good


async def test_of_200_requests_in_a_row_a_broken_decode_worker_meets_three_and_none_fails() -> None:
    clock = Clock()
    async with broken_beside_good(clock) as (plane, bad, good):
        for number in range(200):
            clock.now_s += 0.01
            events = await collect(plane, request(f"r{number}"))
            assert isinstance(events[-1], Completed)
        assert len(good.submitted) == 200
        assert 1 <= len(bad.submitted) <= 3
        assert is_idle(plane)


async def test_of_200_requests_of_eight_clients_it_meets_three_and_none_fails() -> None:
    """While the healthy worker is busy the broken one is idle: by load alone it looks best."""
    clock = Clock()
    async with broken_beside_good(clock) as (plane, bad, _):

        async def client(name: int) -> None:
            for number in range(25):
                clock.now_s += 0.01
                await collect(plane, request(f"c{name}-{number}"))

        await collect(plane, request("first"))
        await asyncio.gather(*(client(name) for name in range(8)))
        assert outcome(plane, "ok") == 201
        assert 1 <= len(bad.submitted) <= 3


async def test_a_first_token_of_the_prefill_worker_does_not_clear_a_broken_decode_worker() -> None:
    """It travels through the decode worker's server, not through its engine."""
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        await plane.store.join(prefill_member())
        [item] = plane.fleet.with_role(Role.DECODE)
        item.cooldown.failed()
        task = asyncio.create_task(
            collect(plane, structs.replace(request(max_tokens=3), token_ids=list(range(40))))
        )
        await until(lambda: len(worker.submitted) == 1)
        assert worker.submitted[0].prefill
        worker.send(tokens_frame("r1", 5))
        await until(lambda: plane.fleet.with_role(Role.PREFILL)[0].num_in_flight == 0)
        assert item.cooldown.is_resting and not item.slow_start.is_proven
        worker.send(tokens_frame("r1", 6))
        await until(lambda: item.slow_start.is_proven)
        assert not item.cooldown.is_resting
        worker.send(tokens_frame("r1", 7, last=True))
        worker.send(ended_frame("r1", made=3))
        await task


async def test_a_worker_is_trusted_again_though_one_token_is_all_that_is_asked() -> None:
    """Where prefill workers sample it, no token is ever its own."""
    clock, worker = Clock(), FakeDecodeWorker(answer_at_once=True)
    async with worker, router() as plane:
        plane.fleet._time = replace(plane.fleet._time, rest_clock=clock)
        await plane.store.join(worker.member())
        await plane.store.join(prefill_member())
        await until(lambda: plane.why_not_ready() is None)
        [item] = plane.fleet.with_role(Role.DECODE)

        def asked(name: str, first: int) -> RoutedRequest:
            return structs.replace(
                request(name, max_tokens=1), token_ids=list(range(first, first + 400))
            )

        plane.fleet.note_request(item.key, failed=True)
        await collect(plane, asked("sent while it rests", 0))
        assert item.cooldown.is_resting and not item.slow_start.is_proven
        clock.now_s += 1.0
        await collect(plane, asked("the one that tries", 1000))
        assert worker.submitted[-1].prefill
        assert item.slow_start.is_proven
        assert not item.cooldown.sent(), "nothing has to be tried: the worker is trusted"


async def test_an_answer_that_may_not_go_on_fails_with_its_worker_and_the_worker_rests() -> None:
    workers = [FakeDecodeWorker("decode-0"), FakeDecodeWorker("decode-1")]
    async with router(*workers, continue_streams=False) as plane:
        task = asyncio.create_task(collect(plane, request(max_tokens=3)))
        await until(lambda: any(worker.submitted for worker in workers))
        chosen = next(worker for worker in workers if worker.submitted)
        chosen.send(tokens_frame("r1", 5))
        chosen.send(error_frame("r1", BROKEN, "the step failed"))
        with pytest.raises(InternalError):
            await task
        assert sum(len(worker.submitted) for worker in workers) == 1
        item = plane.fleet.find(chosen.member().key)
        assert item is not None
        assert plane.fleet.state_of(item) == "resting"
        assert [one.key for one in plane.fleet.ready(Role.DECODE)] != [item.key]


async def test_a_request_that_broke_two_workers_is_not_tried_on_a_third() -> None:
    workers = [broken(f"decode-{number}") for number in range(4)]
    async with router(*workers) as plane:
        with pytest.raises(InternalError):
            await collect(plane, request())
        assert sorted(len(worker.submitted) for worker in workers) == [0, 0, 1, 1]


async def test_the_only_worker_goes_on_getting_requests_while_it_rests() -> None:
    worker = broken("decode-only")
    async with router(worker) as plane:
        for number in range(5):
            with pytest.raises(InternalError):
                await collect(plane, request(f"r{number}"))
        assert len(worker.submitted) == 5
        worker.fails_with, worker.answer_at_once = None, True
        assert isinstance((await collect(plane, request("well")))[-1], Completed)
        assert plane.fleet.state_of(plane.fleet.members[0]) == "ready"


@pytest.mark.parametrize("error", [error for error in ELSEWHERE if error is not NothingCame])
async def test_every_error_that_another_worker_may_not_have_is_tried_there(
    error: type[SplitserveError],
) -> None:
    bad = FakeDecodeWorker("decode-0", fails_with=status_of(error("")).code)
    good = FakeDecodeWorker("decode-1", answer_at_once=True)
    async with router(bad, good) as plane:
        for number in range(3):
            events = await collect(plane, request(f"r{number}"))
            assert isinstance(events[0], ChoiceTokens)
        assert plane.registry.get_sample_value("splitserve_retries_total") == len(bad.submitted)
        assert bad.submitted


async def test_a_request_that_the_index_cannot_expect_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = FakeDecodeWorker()

    def full(*question: object) -> Expectation:
        raise MemoryError("no room for one more")

    async with router(worker) as plane:
        monkeypatch.setattr(plane.index, "expect", full)
        with pytest.raises(MemoryError):
            await collect(plane, request())
        assert is_idle(plane)
        await until(lambda: worker.cancelled == ["r1"])


async def test_a_request_that_cannot_be_counted_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its decode worker is, and then its prefill worker is not."""
    worker = FakeDecodeWorker()

    def fails(item: FleetMember, request_id: str, **shares: int) -> Assignment:
        if not item.is_decode:
            raise MemoryError("no room for one more")
        return assign(item, request_id, **shares)

    async with router(worker) as plane:
        await plane.store.join(prefill_member())
        assign = FleetMember.assign
        monkeypatch.setattr(FleetMember, "assign", fails)
        with pytest.raises(MemoryError):
            await collect(plane, structs.replace(request(), token_ids=list(range(40))))
        assert is_idle(plane)
        await until(lambda: worker.cancelled == ["r1"])


async def test_the_clients_own_fault_is_not_tried_again_and_nobody_rests() -> None:
    bad = FakeDecodeWorker("decode-0", fails_with="invalid_request")
    other = FakeDecodeWorker("decode-1", fails_with="invalid_request")
    async with router(bad, other) as plane:
        with pytest.raises(SplitserveError):
            await collect(plane, request())
        assert len(bad.submitted) + len(other.submitted) == 1
        assert len(plane.fleet.ready(Role.DECODE)) == 2
