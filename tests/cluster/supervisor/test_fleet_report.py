"""What a router is told of spares and restarts, and when."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cluster.scaling.scaler import (
    PoolState,
    RefusalReason,
    ScaleOrder,
    ScalePlan,
    ScaleRefused,
)
from cluster.supervisor.fleet_report import REPORT_INTERVAL_S, FleetReport
from cluster.supervisor.news import Restarting, Serving
from protos.membership_pb2 import ScaleOrder as OrderMessage
from protos.membership_pb2 import SupervisorReport
from tests.cluster.supervisor.supervised_fleet import PlayedFleet, failure_of
from tests.virtual_time import VirtualTime, settle


class PlayedSizes:
    """One prefill worker, which may get a second."""

    states = [PoolState(name="prefill", num_wanted=1, num_present=1, num_ready=1, generation=3)]

    async def take(self, order: ScaleOrder) -> ScalePlan:
        if order.size > 2:
            raise ScaleRefused(RefusalReason.GPUS, "there are two")
        return ScalePlan(pool=order.pool, size_before=1, size=order.size, starting=("prefill-1",))


class Told:
    """A report of a played fleet, in a time of its own."""

    def __init__(self, **options: int) -> None:
        self.time, self.fleet = VirtualTime(), PlayedFleet(**options)
        self.sizes = PlayedSizes()
        self.report = FleetReport(
            "here:1",
            self.fleet.pools,
            lambda: self.fleet.reserve.spares,
            lambda: self.fleet.ends,
            sizes=self.sizes,
            sleep=self.time.sleep,
        )

    def lose(self, name: str, kind: str) -> None:
        self.report(Restarting(failure_of(name, kind), delay_s=0.5))

    @property
    def last(self) -> SupervisorReport:
        return self.fleet.ends.reports[-1]

    @property
    def restarts(self) -> dict[tuple[str, str], int]:
        return {(each.pool, each.cause): each.count for each in self.last.restarts}


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    running = Told(prefill=1, decode=1, decode_warm_spares=1)
    yield running
    await running.report.close()
    await running.fleet.reserve.close()


async def test_a_fleet_without_spares_that_loses_nothing_tells_nothing() -> None:
    told = Told(prefill=1, decode=1)
    told.report(Serving("decode-0", 1, "decode-0/1"))
    await told.time.advance(10 * REPORT_INTERVAL_S)
    assert told.fleet.ends.num_links == 0
    await told.report.close()


async def test_restarts_are_counted_by_pool_and_cause(told: Told) -> None:
    for name, kind in (
        ("decode-1", "rank_lost"),
        ("decode-0", "rank_lost"),
        ("prefill-0", "signal SIGKILL"),
        ("router", "stuck"),
    ):
        told.lose(name, kind)
    await settle()
    assert told.restarts == {
        ("decode", "rank_lost"): 2,
        ("prefill", "signal SIGKILL"): 1,
        ("router", "stuck"): 1,
    }


async def test_spares_are_told_of_as_soon_as_they_are_there(told: Told) -> None:
    told.fleet.come("decode-0", "decode-1")
    told.report(Serving("decode-1", 100, "decode-1/1"))
    await settle()
    (spare,) = told.last.spares
    assert (spare.worker_id, spare.role, spare.address) == ("decode-1", "decode", "decode-1/1")


async def test_a_router_that_was_away_is_told_all_of_it_within_a_second(told: Told) -> None:
    told.fleet.ends.is_there = False
    told.lose("router", "signal SIGKILL")
    told.lose("decode-0", "stuck")
    await told.time.advance(3.5)
    assert told.fleet.ends.reports == []
    told.fleet.ends.is_there = True
    await told.time.advance(REPORT_INTERVAL_S)
    assert told.restarts == {("router", "signal SIGKILL"): 1, ("decode", "stuck"): 1}
    assert told.fleet.ends.num_links == 1


async def test_a_complete_fleet_says_how_large_its_pools_are(told: Told) -> None:
    told.report.begin()
    await settle()
    (pool,) = told.last.pools
    assert (pool.name, pool.wanted, pool.ready, pool.generation) == ("prefill", 1, 1, 3)


async def test_an_order_in_a_reply_is_answered_at_once_and_once(told: Told) -> None:
    told.fleet.ends.orders = [OrderMessage(number=7, pool="prefill", size=2)]
    told.report.begin()
    await settle()
    first, second = told.fleet.ends.reports
    assert not first.answers
    (answer,) = second.answers
    assert (answer.number, answer.reason, list(answer.starting)) == (7, "", ["prefill-1"])
    await told.time.advance(REPORT_INTERVAL_S)
    assert not told.last.answers


async def test_a_refusal_goes_to_the_operator_with_its_reason(told: Told) -> None:
    told.fleet.ends.orders = [OrderMessage(number=8, pool="prefill", size=3)]
    told.report.begin()
    await settle()
    (answer,) = told.last.answers
    assert (answer.number, answer.reason, answer.message) == (8, "gpus", "there are two")
