"""A late first token: another pair tries as well, and the first to have one goes on alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from msgspec import structs

from cluster.errors import WorkerLost
from cluster.generation import EngineLoad
from router.control.plane import FleetPlane
from router.dispatch import retry_budget
from router.dispatch.hedging import _has_spare
from router.dispatch.stream import ChoiceTokens, Completed, RoutedRequest, StreamEvent
from router.fairness.shares import ANSWER_WEIGHT
from router.fleet.need import NOTHING, Need
from router.fleet.room_part import RoomPart
from router.fleet.worker_room import WorkerRoom
from router.tenants.priority import Priority
from tests.router.dispatch_bench import PROMPT, collect, is_idle, request, router
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    ended_frame,
    error_frame,
    tokens_frame,
    until,
)
from tests.router.simulated_fleet import simulated_fleet
from tests.virtual_loop import run_virtually

NOW_AND_THEN = EngineLoad(total_blocks=1000, free_blocks=1000, prefill_token_ms=0.1)


@dataclass
class Late:
    """A request that is late at its first worker, and has been sent to the second."""

    plane: FleetPlane
    first: FakeDecodeWorker
    second: FakeDecodeWorker
    answer: asyncio.Task[list[StreamEvent]]

    def counted(self, name: str) -> float | None:
        return self.plane.registry.get_sample_value(f"splitserve_{name}_total")

    async def is_answered_by(self, worker: FakeDecodeWorker) -> None:
        """And nothing is left of anything."""
        *tokens, completed = await self.answer
        expected = answer_of(worker)
        assert [
            t.token_id for e in tokens if isinstance(e, ChoiceTokens) for t in e.tokens
        ] == expected
        assert isinstance(completed, Completed) and completed.usage.completion_tokens == 2
        await until(lambda: is_idle(self.plane))


def answer_of(worker: FakeDecodeWorker) -> list[int]:
    """Unlike those of others, so that it is known whose tokens came."""
    return [1, 2] if worker.worker_id == "decode-1" else [3, 4]


def say(worker: FakeDecodeWorker, attempt_id: str) -> None:
    worker.send(tokens_frame(attempt_id, *answer_of(worker), last=True))
    worker.send(ended_frame(attempt_id, prompt=len(PROMPT), made=2))


@asynccontextmanager
async def hedged(asked: RoutedRequest | None = None, **options: float) -> AsyncIterator[Late]:
    pair = FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")
    async with router(*pair, hedge_after=2.0, **options) as plane:  # type: ignore[arg-type]
        for worker in pair:
            plane.store.report(worker.member().key, NOW_AND_THEN)
        answer = asyncio.create_task(collect(plane, asked or request()))
        await until(lambda: all(worker.submitted for worker in pair))
        first, second = sorted(pair, key=lambda worker: worker.submitted[0].request_id)
        try:
            yield Late(plane, first, second, answer)
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)


async def test_the_second_that_is_first_goes_on_and_the_first_is_cancelled_at_once() -> None:
    async with hedged() as late:
        first, second = late.first.submitted[0], late.second.submitted[0]
        assert (first.request_id, second.request_id) == ("r1", "r1~2")
        assert first.sampling == second.sampling and first.token_ids == second.token_ids
        late.second.send(tokens_frame("r1~2", answer_of(late.second)[0]))
        await until(lambda: late.first.cancelled == ["r1"])
        say(late.first, "r1")  # it had not heard that yet
        late.second.send(tokens_frame("r1~2", answer_of(late.second)[1], last=True))
        late.second.send(ended_frame("r1~2", prompt=len(PROMPT), made=2))
        await late.is_answered_by(late.second)
        assert (late.counted("hedges"), late.counted("hedges_won")) == (1, 1)
        decision = late.plane.decisions.find("r1")
        assert decision is not None and decision.usage is not None
        assert decision.route.decode.worker_id == late.second.worker_id
        assert "as well: no token in" in decision.notes[0] and "was first" in decision.notes[1]


async def test_the_first_that_is_first_after_all_goes_on_and_the_second_is_cancelled() -> None:
    async with hedged() as late:
        say(late.first, "r1")
        await late.is_answered_by(late.first)
        await until(lambda: late.second.cancelled == ["r1~2"])
        assert not late.first.cancelled
        assert (late.counted("hedges"), late.counted("hedges_won")) == (1, 0)


@pytest.mark.parametrize("wins", ["r1", "r1~2"])
async def test_its_tenant_pays_for_one_and_the_retry_budget_has_it(wins: str) -> None:
    async with hedged() as late:
        worker = late.first if wins == "r1" else late.second
        say(worker, wins)
        await late.is_answered_by(worker)
        shares = late.plane.admission._line.shares_of(Priority.STANDARD.level)
        assert shares._counters.of("") == len(PROMPT) + ANSWER_WEIGHT * 2
        assert late.plane.source._rules.budget.used_share == 1 / 100


@pytest.mark.parametrize("code", ["worker_lost", "internal_error", "out_of_blocks"])
async def test_where_one_fails_the_other_goes_on_and_nobody_is_asked_a_third_time(
    code: str,
) -> None:
    for fails in ("r1", "r1~2"):
        async with hedged() as late:
            bad, good = (late.first, late.second) if fails == "r1" else (late.second, late.first)
            bad.send(error_frame(fails, code, "as the test says"))
            item = late.plane.fleet.find(bad.member().key)
            assert item is not None
            await until(lambda: item.num_in_flight == 0)  # noqa: B023
            assert item.cooldown.is_trusted == (code == "out_of_blocks")
            say(good, "r1~2" if fails == "r1" else "r1")
            await late.is_answered_by(good)
            assert len(late.first.submitted) == len(late.second.submitted) == 1


async def test_where_both_fail_the_client_hears_of_it_once() -> None:
    async with hedged() as late:
        late.first.send(error_frame("r1", "worker_lost", "the first"))
        late.second.send(error_frame("r1~2", "worker_lost", "the second"))
        with pytest.raises(WorkerLost, match="lost 2 times"):
            await late.answer
        await until(lambda: is_idle(late.plane))


async def test_an_error_of_the_requests_own_ends_both() -> None:
    async with hedged() as late:
        late.first.send(error_frame("r1", "invalid_request", "this cannot be"))
        with pytest.raises(Exception, match="this cannot be"):
            await late.answer
        await until(lambda: late.second.cancelled == ["r1~2"])
        await until(lambda: is_idle(late.plane))


async def test_who_leaves_cancels_both() -> None:
    async with hedged() as late:
        late.answer.cancel()
        await until(lambda: (late.first.cancelled, late.second.cancelled) == (["r1"], ["r1~2"]))
        await until(lambda: is_idle(late.plane))


async def test_who_gives_way_leaves_both_and_comes_again_by_a_third_name() -> None:
    slow = structs.replace(request(), priority=Priority.BATCH)
    async with hedged(slow, max_running_requests=1) as late:
        quick = structs.replace(request("quick"), priority=Priority.INTERACTIVE)
        asking = asyncio.create_task(collect(late.plane, quick))
        await until(lambda: (late.first.cancelled, late.second.cancelled) == (["r1"], ["r1~2"]))
        submitted = late.first.submitted, late.second.submitted
        await until(lambda: sum(map(len, submitted)) >= 3)  # or 4: it may be late as well
        for worker in (late.first, late.second):
            say(worker, "quick")
        await asking
        await until(lambda: "r1~3" in {each.request_id for all in submitted for each in all})
        for worker in (late.first, late.second):
            say(worker, "r1~3")
        *_, completed = await late.answer
        assert isinstance(completed, Completed)
        await until(lambda: is_idle(late.plane))


async def test_a_reservation_goes_over_to_the_winner_and_is_held_once() -> None:
    async with hedged(reserve_room=True) as late:
        rooms = {
            worker.worker_id: item.room
            for worker in (late.first, late.second)
            if (item := late.plane.fleet.find(worker.member().key)) is not None
        }
        assert [room.promised_seqs for room in rooms.values()] == [1, 1]
        late.second.send(tokens_frame("r1~2", answer_of(late.second)[0]))
        await until(lambda: rooms[late.first.worker_id].promised_seqs == 0)
        assert rooms[late.second.worker_id].promised_seqs == 1
        late.second.send(tokens_frame("r1~2", answer_of(late.second)[1], last=True))
        late.second.send(ended_frame("r1~2", prompt=len(PROMPT), made=2))
        await late.is_answered_by(late.second)


async def test_only_a_worker_that_is_well_and_has_room_is_sent_a_second_attempt() -> None:
    async with router(FakeDecodeWorker("decode-1")) as plane:
        (item,) = plane.fleet.members
        asked, part = request(), RoomPart(NOTHING, None)
        state = item.state
        assert _has_spare(item, asked, part)
        for load in (
            EngineLoad(total_blocks=1000, free_blocks=2),
            EngineLoad(total_blocks=1000, free_blocks=1000, num_running=3, num_waiting=1),
        ):
            member = replace(state.member, max_num_seqs=4)
            item.state = replace(state, member=member, load=load)
            assert not _has_spare(item, asked, part)
        item.state = state
        item.room = WorkerRoom(1, 16)
        part = RoomPart(Need(), item.room)
        assert not _has_spare(item, asked, part), "its own part is no place for a second attempt"
        part.release()
        item.cooldown.failed()
        assert not _has_spare(item, asked, part)


async def test_the_second_attempt_goes_to_the_best_of_those_that_have_room() -> None:
    """The cheapest other worker has no seat: the next one has."""
    fleet = [FakeDecodeWorker(f"decode-{at}") for at in (1, 2, 3)]
    async with router(*fleet, hedge_after=2.0) as plane:  # type: ignore[arg-type]
        for worker, waiting_tokens in zip(fleet, (0, 5_000, 50_000), strict=True):
            load = structs.replace(
                NOW_AND_THEN, waiting_prefill_tokens=waiting_tokens, waiting_prompts=1
            )
            plane.store.report(worker.member().key, load)
        first, full, roomy = fleet
        item = plane.fleet.find(full.member().key)
        assert item is not None
        item.room = WorkerRoom(1, 16)
        part = RoomPart(Need(), item.room)
        answer = asyncio.create_task(collect(plane, request()))
        await until(lambda: bool(first.submitted) and bool(roomy.submitted or full.submitted))
        assert not full.submitted
        say(roomy, "r1~2")
        await answer
        part.release()


async def first_tokens(**options: float) -> tuple[list[float], float, bool]:
    """Of a fleet one of whose prefill workers takes thirty times as long as it says; how many were
    sent twice, and whether each has all of its tokens and nothing is left."""
    async with simulated_fleet(num_prefill=2, **options) as fleet:
        fleet.decode[0]._prefill["prefill-0"].slowness = 30.0
        await fleet.ask_at_random("person", 4.0, 15.0)
        await fleet.all_over()
        plane = fleet.plane
        hedges = plane.registry.get_sample_value("splitserve_hedges_total") or 0.0
        is_whole = is_idle(plane) and all(each.num_tokens == 10 for each in fleet.outcomes)
        return sorted(each.ttft_s or 99.0 for each in fleet.outcomes), hedges, is_whole


def test_a_worker_that_is_slower_than_it_says_delays_nobody_for_long() -> None:
    plain_s, none, is_whole = run_virtually(first_tokens())
    assert none == 0 and is_whole, "off by default"
    waits_s, num_hedges, is_whole = run_virtually(first_tokens(hedge_after=2.0))
    assert is_whole and num_hedges > 0
    assert waits_s[-1] < plain_s[-1] / 2


async def without_retries() -> float:
    """How many were sent twice in a window whose retries are spent."""
    async with simulated_fleet(num_prefill=4, hedge_after=2.0) as fleet:
        fleet.decode[0]._prefill["prefill-0"].slowness = 30.0
        budget = fleet.plane.source._rules.budget
        while budget.has_room:
            budget.spend()
        await fleet.ask_at_random("person", 4.0, retry_budget.WINDOW_S - 2.0)
        await fleet.all_over()
        assert all(each.num_tokens == 10 for each in fleet.outcomes)
        return fleet.plane.registry.get_sample_value("splitserve_hedges_total") or 0.0


def test_where_the_retry_budget_is_spent_nobody_has_a_second_attempt() -> None:
    assert run_virtually(without_retries()) == 0
