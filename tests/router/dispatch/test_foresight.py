"""What is known of requests at the door, and what it costs to know it."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from msgspec import structs

from cluster.deadline import Deadline
from cluster.errors import ContextTooLong
from cluster.identity import Role, WorkerKey
from cluster.sampling import SamplingParams
from router.dispatch.asked import Asked
from router.dispatch.foresight import BELIEVED_S, Foresight, asked_by
from router.dispatch.pricings import MAX_PRICED, TOKENS_PER_S, Pricings
from router.dispatch.routing import RoutingDesk
from router.dispatch.stream import RoutedRequest
from router.fairness.shares import LEAST_CHARGE
from router.fleet.need import Need
from router.pricing.estimates import Estimates
from router.tenants.priority import Priority
from tests.manual_clock import ManualClock
from tests.router.dispatch.test_fleet_room import workers
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, until


class CountingDesk:
    """A desk, and its decision: so many tokens are everywhere."""

    num_priced = 0
    num_cached = 7

    def decide(self, request: RoutedRequest, excluded: frozenset[WorkerKey]) -> CountingDesk:
        self.num_priced += 1
        return self

    def cached_at(self, key: WorkerKey) -> int:
        return self.num_cached


def foreseen(
    desk: CountingDesk, pricings: Pricings, clock: ManualClock, prompt_tokens: int = 9
) -> Foresight:
    asked = structs.replace(request(), token_ids=[1] * prompt_tokens)
    asked = structs.replace(asked, limits=structs.replace(asked.limits, clock=clock))
    return Foresight(asked, cast(RoutingDesk, desk), Estimates(), pricings)


def test_once_enough_routes_are_priced_what_was_believed_before_counts_or_nothing() -> None:
    desk, clock, key = CountingDesk(), ManualClock(), WorkerKey("d", "1")
    pricings = Pricings(clock)
    many = [foreseen(desk, pricings, clock) for _ in range(MAX_PRICED + 2)]
    assert [each.cached_tokens(key) for each in many] == [7] * MAX_PRICED + [0, 0]
    assert not many[-1].is_local(0.0)
    clock.advance(2 * BELIEVED_S)
    assert many[0].cached_tokens(key) == 7, "as was believed before"
    assert desk.num_priced == MAX_PRICED
    pricings.renew()
    assert many[-1].cached_tokens(key) == 7
    assert desk.num_priced == MAX_PRICED + 1


async def test_a_look_over_a_long_line_prices_few_routes() -> None:
    async with workers(1) as fleet:
        await fleet.ask("first", Need(1, 10, 10))
        fleet.say(total_blocks=1000, free_blocks=100)
        desk = CountingDesk()
        for number in range(10):
            asked = Asked(
                came_s=fleet.clock(),
                deadline=Deadline.after(1000.0, fleet.clock),
                need=Need(1, 5000 - 100 * number, 100),
                prospect=foreseen(desk, fleet.admission.pricings, fleet.clock),
            )
            fleet.asked[str(number)] = asyncio.create_task(fleet.admission.admit(asked))
        assert await fleet.served() == ["first"]
        fleet.clock.advance(2 * BELIEVED_S)
        desk.num_priced = 0
        fleet.admission.look()
        assert desk.num_priced == MAX_PRICED


def test_the_longest_prompt_is_priced_in_its_turn_and_those_after_it_wait_for_that() -> None:
    pricings = Pricings(clock := ManualClock())
    assert pricings.take(1_000_000)
    pricings.renew()
    assert not pricings.take(1)
    clock.advance(1_000_000 / TOKENS_PER_S)
    assert pricings.take(1)


async def test_a_thousand_that_wait_are_priced_as_far_as_a_second_has_time_for_it() -> None:
    """One of 10k tokens takes 2 ms: a hundred ends a second, each of them a look, would be 40 % of
    the loop at two a look."""
    prompt_tokens, seconds = 10_000, 10
    async with workers(1, max_queued=1000) as fleet:
        await fleet.ask("first", Need(1, 10, 10))
        fleet.say(total_blocks=1000, free_blocks=100)
        desk = CountingDesk()
        for number in range(1000):
            seen = foreseen(desk, fleet.admission.pricings, fleet.clock, prompt_tokens)
            need = Need(1, 50_000 - number, 100)
            asked = Asked(
                came_s=fleet.clock(),
                deadline=Deadline.after(1000.0, fleet.clock),
                need=need,
                prospect=seen,
            )
            fleet.asked[str(number)] = asyncio.create_task(fleet.admission.admit(asked))
        assert await fleet.served() == ["first"]
        desk.num_priced = 0
        for _ in range(100 * seconds):
            fleet.clock.advance(0.01)
            fleet.admission.look()
        assert 0 < desk.num_priced <= seconds * TOKENS_PER_S / prompt_tokens + 1


def test_who_was_not_priced_is_looked_at_as_soon_as_there_is_time_for_it() -> None:
    clock = ManualClock()
    pricings = Pricings(clock)
    assert pricings.take(int(TOKENS_PER_S)) and pricings.ready_in_s is None
    assert not pricings.take(1)
    ready_in_s = pricings.ready_in_s
    assert ready_in_s == 0.5
    clock.advance(ready_in_s + 0.001)
    pricings.renew()
    assert pricings.ready_in_s is None and pricings.take(1)


@pytest.mark.parametrize(("n", "num_seqs"), [(1, 1), (16, 16), (40, 16)])
async def test_choices_beyond_all_seats_take_turns_in_those_there_are(
    n: int, num_seqs: int
) -> None:
    async with FakeDecodeWorker() as worker, router() as plane:
        await plane.store.join(worker.member(max_num_seqs=16))
        await until(lambda: len(plane.fleet.ready(Role.DECODE)) == 1)
        asked = structs.replace(request(), sampling=SamplingParams(max_tokens=2, n=n))
        source = plane.source
        need = asked_by(asked, source._desk, source._estimates, Pricings(asked.limits.clock)).need
        assert (need.num_seqs, need.answer_tokens) == (num_seqs, 2 * n)


async def test_a_prompt_that_no_worker_can_hold_is_not_charged() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        with pytest.raises(ContextTooLong):
            await collect(plane, request(max_tokens=1_000_000))
        shares = plane.admission._line.shares_of(Priority.STANDARD.level)
        assert shares._counters.of("") == LEAST_CHARGE
