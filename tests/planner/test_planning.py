"""A planner's turns: who is asked, who is told, and what a fleet that does not answer changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from cluster.dial.dialer import Dialer, OperatorLink
from cluster.errors import WorkerLost
from cluster.planner_options import PlanRules
from cluster.scaling.scaler import (
    OrderUnanswered,
    PoolState,
    RefusalReason,
    ScaleOrder,
    ScalePlan,
    Scaler,
    ScaleRefused,
)
from cluster.world import World
from planner.orders import SizeOrders
from planner.planner_metrics import PlannerMetrics
from planner.planning import Planning
from planner.pool_limits import PoolLimits
from planner.routers import Routers
from planner.sight import FleetEyes
from protos import fleet_watch_pb2, membership_pb2
from tests.manual_clock import ManualClock
from tests.planner.test_sight import member, pressures

RULES = PlanRules(look_interval_s=5, grow_after_s=10, shrink_after_s=30, shrink_every_s=10)


@dataclass
class PlayedRouter(OperatorLink):
    """Says what a test has put in."""

    ratio: float = 0.0
    members_there: list[membership_pb2.MemberState] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    is_away: bool = False

    async def members(self, *, timeout_s: float) -> membership_pb2.MembersResponse:
        if self.is_away:
            raise WorkerLost("connection refused")
        return membership_pb2.MembersResponse(members=self.members_there)

    async def pressure(self, *, timeout_s: float) -> fleet_watch_pb2.PressureResponse:
        if self.is_away:
            raise WorkerLost("connection refused")
        return pressures(("prefill", "wait", self.ratio))

    async def planned(self, word: fleet_watch_pb2.PlannerWord, *, timeout_s: float) -> None:
        self.told.append((word.pool, word.words))

    async def close(self) -> None:
        """Nothing was open."""


@dataclass
class PlayedScaler(Scaler):
    """One pool, that is at once what is wanted."""

    size: int = 1
    orders: list[ScaleOrder] = field(default_factory=list)
    refusal: Exception | None = None

    async def pools(self) -> Sequence[PoolState]:
        size = self.size
        return [
            PoolState(
                name="prefill", num_wanted=size, num_present=size, num_ready=size, generation=1
            )
        ]

    async def scale(self, order: ScaleOrder) -> ScalePlan:
        self.orders.append(order)
        if self.refusal is not None:
            raise self.refusal
        before, self.size = self.size, self.size if order.is_dry_run else order.size
        return ScalePlan(pool=order.pool, size_before=before, size=order.size)

    async def close(self) -> None:
        """Nothing was open."""


class PlayedDialer(Dialer):
    def __init__(self, router: PlayedRouter) -> None:
        self._router = router

    def operator(self, address: str) -> OperatorLink:
        return self._router


class Bench:
    """A planner of one played fleet."""

    def __init__(self, *, is_dry_run: bool = False, size: int = 1) -> None:
        self.clock, self.router, self.scaler = ManualClock(), PlayedRouter(), PlayedScaler(size)
        self.metrics = PlannerMetrics()
        world = World(dialer=PlayedDialer(self.router), clock=self.clock, sleep=self.clock.sleep)
        routers = Routers("127.0.0.1:1", world)
        orders = SizeOrders(routers, self.scaler, names_workers=True, is_dry_run=is_dry_run)
        eyes = FleetEyes(routers, self.scaler, self.clock)
        limits = (PoolLimits("prefill", 1, 3),)
        self.router.members_there = [member(f"prefill-{i}", "prefill") for i in range(size)]
        self.planning = Planning(eyes, orders, limits, RULES, self.metrics, self.clock)

    async def looks(self, number: int) -> None:
        for _ in range(number):
            await self.planning.turn()
            self.clock.advance(RULES.look_interval_s)

    def counted(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"splitserve_planner_{name}", labels)


async def test_a_pool_grows_by_the_scaler_and_every_router_hears_why() -> None:
    bench = Bench()
    bench.router.ratio = 1.0
    await bench.looks(3)
    (order,) = bench.scaler.orders
    assert (order.pool, order.size, order.leaving, order.by) == ("prefill", 2, (), "the planner")
    ((pool, words),) = bench.router.told
    assert pool == "prefill"
    assert words.startswith("from 1 to 2, begun: prompts wait 1.00 of the TTFT budget")
    assert bench.counted("decisions_total", pool="prefill", outcome="begun") == 1
    assert bench.counted("pressure_ratio", role="prefill") == 1.0


async def test_who_leaves_is_whoever_has_the_least_to_lose() -> None:
    bench = Bench(size=2)
    bench.router.members_there[1].num_in_flight = 4
    await bench.looks(7)
    (order,) = bench.scaler.orders
    assert (order.size, order.leaving) == (1, ("prefill-0",))


@pytest.mark.parametrize("hold", ["cordon", "drain"])
async def test_the_healthy_worker_beside_a_held_one_stays(hold: str) -> None:
    bench = Bench(size=3)
    bench.router.members_there[0].hold = hold
    await bench.looks(20)
    assert bench.scaler.orders == [] and bench.scaler.size == 3
    assert bench.counted("stand", role="prefill", stand="held") == 1


async def test_a_dry_run_asks_says_what_it_would_do_and_changes_nothing() -> None:
    bench = Bench(is_dry_run=True)
    bench.router.ratio = 1.0
    await bench.looks(5)
    assert [order.is_dry_run for order in bench.scaler.orders] == [True]
    assert bench.scaler.size == 1
    ((_, words),) = bench.router.told
    assert words.startswith("from 1 to 2, dry run: prompts wait")


async def test_what_is_refused_is_told_and_not_tried_again_at_once() -> None:
    bench = Bench()
    bench.router.ratio = 1.0
    bench.scaler.refusal = ScaleRefused(RefusalReason.GPUS, "all 8 are taken")
    await bench.looks(14)
    assert len(bench.scaler.orders) == 1
    ((_, words),) = bench.router.told
    assert words.startswith("from 1 to 2, refused (gpus: all 8 are taken)")
    await bench.looks(4)
    assert len(bench.scaler.orders) == 2


@pytest.mark.parametrize("failure", [WorkerLost, OrderUnanswered])
async def test_an_order_that_nobody_answers_may_have_begun_and_is_told_so(
    failure: type[Exception],
) -> None:
    bench = Bench()
    bench.router.ratio = 1.0
    bench.scaler.refusal = failure("the supervisor is gone")
    await bench.looks(3)
    assert bench.router.told[0][1].startswith("from 1 to 2, unknown (the supervisor is gone)")
    assert bench.counted("decisions_total", pool="prefill", outcome="unknown") == 1


async def test_a_fleet_that_is_not_seen_is_left_as_it_is_and_is_not_calm_afterwards() -> None:
    bench = Bench(size=2)
    await bench.looks(5)
    bench.router.is_away = True
    await bench.looks(20)
    why = bench.planning.why_not_ready()
    assert why is not None and "no router answers at 127.0.0.1:1" in why
    assert bench.counted("sees_fleet") == 0
    bench.router.is_away = False
    await bench.looks(5)
    assert bench.scaler.orders == []
    assert bench.planning.why_not_ready() is None
    await bench.looks(3)
    assert [order.size for order in bench.scaler.orders] == [1]


async def test_a_pool_at_its_most_is_told_once() -> None:
    bench = Bench(size=3)
    bench.router.ratio = 3.0
    await bench.looks(10)
    assert bench.scaler.orders == []
    ((pool, words),) = bench.router.told
    assert (pool, words.startswith("does not grow: prompts wait 3.00")) == ("prefill", True)
    assert bench.counted("stand", role="prefill", stand="at_most") == 1


async def test_routers_behind_a_name_come_and_go_and_one_that_is_lost_is_kept() -> None:
    found: list[frozenset[str] | OSError] = [
        frozenset({"10.0.0.1", "10.0.0.2"}),
        OSError("no name server"),
        frozenset({"10.0.0.2"}),
    ]

    async def lookup(name: str) -> frozenset[str]:
        answer = found.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def ask(router: OperatorLink) -> int:
        return 1

    routers = Routers(
        "dns+routers:50052", World(dialer=PlayedDialer(PlayedRouter()), lookup=lookup)
    )
    assert [len(await routers.each(ask)) for _ in range(3)] == [2, 2, 1]
    await routers.close()


async def test_a_fault_of_its_own_is_not_taken_for_a_silent_router() -> None:
    async def ask(router: OperatorLink) -> int:
        raise ZeroDivisionError

    routers = Routers("127.0.0.1:1", World(dialer=PlayedDialer(PlayedRouter())))
    with pytest.raises(ZeroDivisionError):
        await routers.each(ask)


async def test_that_more_workers_have_not_helped_is_told_once() -> None:
    bench = Bench()
    bench.router.ratio = 1.0
    await bench.looks(60)
    assert [order.size for order in bench.scaler.orders] == [2]
    grown, unhelped = (words for _, words in bench.router.told)
    assert grown.startswith("from 1 to 2, begun") and "more workers have not helped" in unhelped
    bench.router.ratio = 0.0
    await bench.looks(1)
    bench.router.ratio = 1.0
    await bench.looks(20)
    assert len(bench.router.told) == 2


async def test_an_order_that_is_refused_is_no_growth_that_has_not_helped() -> None:
    bench = Bench()
    bench.router.ratio = 1.0
    bench.scaler.refusal = ScaleRefused(RefusalReason.GPUS, "all 8 are taken")
    await bench.looks(60)
    assert bench.counted("stand", role="prefill", stand="unhelped") == 0
