"""What pools are scaled by says 1 where a pool is at its budget, and leads what clients see."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

from prometheus_client import CollectorRegistry, generate_latest

from cluster.common_options import BudgetOptions
from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.membership.member import MemberState
from router.control.pool_pressure import PoolPressure
from router.control.runway import Runway
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.pricing.estimates import Estimates
from router.telemetry.pressure_metrics import PressureMetrics
from tests.manual_clock import ManualClock
from tests.router.planes import member_of

BUDGETS = BudgetOptions(ttft_budget_ms=1000.0, itl_budget_ms=40.0, scale_notice_s=60.0)
BLOCK_TOKENS = 16


class _Workers:
    """Stands for Fleet."""

    def __init__(self, num_prefill: int = 2, num_decode: int = 2) -> None:
        self.prefill = [_worker(Role.PREFILL, f"p{at}") for at in range(num_prefill)]
        self.decode = [_worker(Role.DECODE, f"d{at}") for at in range(num_decode)]

    def with_role(self, role: Role) -> list[FleetMember]:
        return self.prefill if role is Role.PREFILL else self.decode


class Watched:
    """A PoolPressure, and what it is made of."""

    def __init__(self, *, num_prefill: int = 2) -> None:
        self.clock = ManualClock()
        self.workers = _Workers(num_prefill)
        self.line_s = 0.0
        self.estimates = Estimates(self.clock)
        fleet = cast(Fleet, self.workers)
        self.pressure = PoolPressure(
            fleet, self.estimates, lambda: self.line_s, BUDGETS, self.clock
        )

    def of(self, role: Role, signal: str) -> float:
        [found] = [p for p in self.pressure.now() if (p.role, p.signal) == (role.value, signal)]
        return found.ratio

    def decode_has(self, load: EngineLoad) -> None:
        for item in self.workers.decode:
            item.state = replace(item.state, load=load)
            item.room.heard(load)


def _worker(role: Role, name: str) -> FleetMember:
    return FleetMember(MemberState.joined(member_of(role, name, max_num_seqs=1), 0.0))


def _fill_seats(members: list[FleetMember]) -> None:
    for item in members:
        item.room.promised_seqs = 1


def test_an_idle_fleet_is_under_no_pressure() -> None:
    assert {each.ratio for each in Watched().pressure.now()} == {0.0}


def test_prompts_press_by_the_time_that_they_take_over_the_budget_shared_by_all_workers() -> None:
    watched = Watched()
    watched.workers.prefill[0].pending_prefill_tokens = 4000
    alone_ms = watched.estimates.prefill.speed_of(watched.workers.prefill[0].key).of(4000)
    assert watched.of(Role.PREFILL, "wait") == alone_ms / 2 / BUDGETS.ttft_budget_ms


def test_the_routers_line_presses_those_that_it_waits_for() -> None:
    watched = Watched()
    watched.line_s = 2.0
    assert watched.of(Role.PREFILL, "wait") == 2.0
    assert watched.of(Role.DECODE, "wait") == 0.0
    _fill_seats(watched.workers.decode)
    assert watched.of(Role.PREFILL, "wait") == 0.0
    assert watched.of(Role.DECODE, "wait") == 2.0


def test_without_prefill_workers_every_line_is_for_decode_workers() -> None:
    watched = Watched(num_prefill=0)
    watched.line_s = 0.5
    assert watched.of(Role.PREFILL, "wait") == 0.0
    assert watched.of(Role.DECODE, "wait") == 0.5


def test_steps_press_by_their_length_and_only_where_something_is_decoded() -> None:
    watched = Watched()
    watched.decode_has(EngineLoad(num_running=3, decode_step_ms=30.0))
    assert watched.of(Role.DECODE, "inter_token") == 30 / 40
    watched.decode_has(EngineLoad(num_running=0, decode_step_ms=30.0))
    assert watched.of(Role.DECODE, "inter_token") == 0.0


def test_blocks_press_by_how_soon_they_are_gone_and_not_by_how_many_are_in_use() -> None:
    watched = Watched()
    watched.decode_has(EngineLoad(total_blocks=10_000, free_blocks=1000))
    for _ in range(100):
        watched.clock.advance(1.0)
        assert watched.of(Role.DECODE, "free_blocks") == 0.0  # nearly full, and steady
    for at in range(100):
        watched.clock.advance(1.0)
        watched.decode_has(EngineLoad(total_blocks=10_000, free_blocks=1000 - 5 * at))
        pressure = watched.of(Role.DECODE, "free_blocks")
    left_s = (1000 - 5 * 99) / 5
    assert math.isclose(pressure, BUDGETS.scale_notice_s / left_s, rel_tol=0.1)


def test_a_stock_that_grows_lasts_for_ever_and_one_that_is_gone_does_not_divide_by_zero() -> None:
    clock = ManualClock()
    runway = Runway[str](clock)
    assert runway.left_s({"w": 100}) == math.inf
    clock.advance(10.0)
    assert runway.left_s({"w": 200}) == math.inf
    clock.advance(1000.0)
    assert 0 < runway.left_s({"w": 0}) < 1


def test_a_worker_that_comes_or_goes_uses_nothing() -> None:
    clock = ManualClock()
    runway = Runway[str](clock)
    for workers in (("a", "b"), ("a",), ("a", "c")):
        assert runway.left_s(dict.fromkeys(workers, 1000.0)) == math.inf
        clock.advance(15.0)


def test_streams_that_leave_a_drained_worker_for_another_use_nothing() -> None:
    clock = ManualClock()
    runway = Runway[str](clock)
    assert runway.left_s({"a": 1000.0, "b": 1000.0}) == math.inf
    for moved in range(100, 600, 100):
        clock.advance(1.0)
        assert runway.left_s({"b": 1000.0 - moved}, {"a": 1000.0 + moved}) == math.inf
    clock.advance(1.0)
    assert runway.left_s({"b": 300.0}, {"a": 1500.0}) < math.inf


def test_looking_often_does_not_change_how_fast_a_stock_goes() -> None:
    clocks = [ManualClock(), ManualClock()]
    seldom, often = (Runway[str](clock) for clock in clocks)
    for at in range(61):
        stock = 1000 - 10 * at
        if at % 10 == 0:
            slow = seldom.left_s({"w": stock})
        for _ in range(4):
            fast = often.left_s({"w": stock})
            clocks[1].advance(0.25)
        clocks[0].advance(1.0)
    assert math.isclose(slow, fast, rel_tol=0.15)


def test_a_scrape_shows_all_of_it() -> None:
    registry = CollectorRegistry()
    registry.register(PressureMetrics(Watched().pressure.now))
    page = generate_latest(registry).decode()
    assert 'splitserve_pool_pressure_ratio{role="prefill",signal="wait"} 0.0' in page
    assert page.count("splitserve_pool_pressure_ratio{") == 4


def test_who_takes_no_work_bears_no_part_of_the_pressure() -> None:
    watched = Watched()
    for members in (watched.workers.prefill, watched.workers.decode):
        left = members[1]
        left.state = replace(left.state, draining=True)
    working = watched.workers.decode[0]
    working.state = replace(
        working.state, load=EngineLoad(num_running=1, decode_step_ms=1.5 * BUDGETS.itl_budget_ms)
    )
    assert watched.of(Role.DECODE, "inter_token") == 1.5
    prefill = watched.workers.prefill[0]
    prefill.pending_prefill_tokens = 4000
    alone_ms = watched.estimates.prefill.speed_of(prefill.key).of(4000)
    assert watched.of(Role.PREFILL, "wait") == alone_ms / BUDGETS.ttft_budget_ms


def test_where_nobody_takes_work_those_who_are_there_bear_it() -> None:
    watched = Watched()
    for item in watched.workers.decode:
        item.state = replace(
            item.state,
            draining=True,
            load=EngineLoad(num_running=1, decode_step_ms=2.0 * BUDGETS.itl_budget_ms),
        )
    assert watched.of(Role.DECODE, "inter_token") == 2.0
