"""Errors of many workers do not double what they have to do."""

import pytest

from cluster.errors import InternalError
from cluster.identity import Role
from router.dispatch.attempts import AttemptRules, Attempts
from router.dispatch.retry_budget import (
    REQUESTS_PER_RETRY,
    RETRIES_PER_S,
    WINDOW_S,
    RetryBudget,
)
from router.dispatch.stream import Completed
from router.dispatch.time_limits import NothingCame
from tests.manual_clock import ManualClock
from tests.router.dispatch_bench import collect, is_idle, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker
from tests.router.front_fakes import until

ALWAYS = RETRIES_PER_S * WINDOW_S


def test_a_hundred_are_allowed_in_ten_seconds_however_few_requests_there_are() -> None:
    clock = ManualClock()
    budget = RetryBudget(lambda: 0, clock)
    for _ in range(ALWAYS):
        assert budget.has_room
        budget.spend()
    assert not budget.has_room
    clock.advance(WINDOW_S - 1)
    assert not budget.has_room
    clock.advance(1)
    assert budget.has_room and budget.used_share == 0.0


@pytest.mark.parametrize("begin", [True, False])
def test_of_many_requests_a_fifth_is_allowed_be_they_new_or_long_under_way(begin: bool) -> None:
    clock = ManualClock()
    num_live = 40 * ALWAYS
    budget = RetryBudget(lambda: 0 if begin else num_live, clock)
    for _ in range(num_live if begin else 0):
        budget.begun()
    for _ in range(num_live // REQUESTS_PER_RETRY):
        assert budget.has_room
        budget.spend()
    assert not budget.has_room


async def test_without_budget_a_request_gets_the_first_workers_error_and_meets_no_second() -> None:
    broken = [FakeDecodeWorker(f"decode-{i}", fails_with="internal_error") for i in range(2)]
    async with router(*broken) as plane:
        budget = plane.source._rules.budget
        with pytest.raises(InternalError):
            await collect(plane, request("tries"))
        assert [len(worker.submitted) for worker in broken] == [1, 1]
        assert budget.used_share == pytest.approx(1 / ALWAYS)
        for _ in range(ALWAYS):
            budget.spend()
        with pytest.raises(InternalError):
            await collect(plane, request("tries-not"))
        assert sum(len(worker.submitted) for worker in broken) == 3
        assert is_idle(plane)


async def test_a_request_whose_worker_is_lost_goes_on_whatever_was_spent() -> None:
    lost, other = FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")
    for worker in (lost, other):
        worker.fails_with = "worker_lost"
    async with router(lost, other) as plane:
        for _ in range(ALWAYS):
            plane.source._rules.budget.spend()
        spent = plane.source._rules.budget.used_share
        other.fails_with, other.answer_at_once = None, True
        lost.fails_with, lost.answer_at_once = "worker_lost", False
        for number in range(4):
            events = await collect(plane, request(f"r{number}"))
            assert isinstance(events[-1], Completed)
        assert lost.submitted
        assert plane.source._rules.budget.used_share == spent


async def test_all_streams_of_a_frozen_worker_go_on_however_many_come_at_once() -> None:
    num_streams = 4 * ALWAYS
    async with router(FakeDecodeWorker("decode-0"), FakeDecodeWorker("decode-1")) as plane:
        fleet = plane.fleet
        await until(lambda: len(fleet.ready(Role.DECODE)) == 2, "both are there")
        frozen, other = (item.key for item in fleet.ready(Role.DECODE))
        rules = AttemptRules(RetryBudget(lambda: num_streams, ManualClock()))
        streams = [Attempts(fleet, rules) for _ in range(num_streams)]
        for each in streams:
            each.sent(frozen)
            each.begun()
        silent = NothingCame("nothing came")
        for each in streams:
            assert each.may_go_on(silent)
            each.failed(frozen, silent)
            each.sent(other)
        assert rules.budget.used_share == 0.0
        unbegun = Attempts(fleet, rules)
        unbegun.sent(frozen)
        unbegun.failed(frozen, silent)
        unbegun.sent(other)
        assert rules.budget.used_share > 0.0  # its worker may still be at it
