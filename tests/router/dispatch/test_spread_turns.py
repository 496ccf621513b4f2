"""That who comes finds a turn soon, though one tenant has all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from cluster.deadline import Deadline
from cluster.generation import EngineLoad
from cluster.identity import Role, WorkerKey
from cluster.membership.member import MemberState
from router.dispatch.asked import Asked
from router.dispatch.outlook import Outlook
from router.dispatch.spread_turns import ACTIVE_S, CLOSE, SpreadTurns
from router.fleet.member import FleetMember
from router.fleet.need import Need
from router.fleet.prompt_turns import MAX_AHEAD_MS, PromptTurns
from router.tenants.priority import Priority
from tests.manual_clock import ManualClock
from tests.router.planes import member_of

PROMPT_MS = 1000.0


@dataclass(slots=True)
class Nothing:
    """A prospect."""

    def is_local(self, line_ms: float) -> bool:
        return False

    def cached_tokens(self, key: WorkerKey) -> int:
        return 0

    def outlook(self) -> Outlook | None:
        return None


class Turns:
    """Of some workers that take a millisecond for a token."""

    def __init__(self, num_workers: int = 4) -> None:
        self.clock = ManualClock()
        self.spread = SpreadTurns(self.clock)
        said = EngineLoad(prefill_token_ms=1.0)
        self.items = [
            FleetMember(
                replace(MemberState.joined(member_of(Role.DECODE, f"d{at}"), 0.0), load=said),
                prompts=PromptTurns(self.clock),
            )
            for at in range(num_workers)
        ]

    def compute(self, at: int, tenant: str = "flood", est_ms: float = PROMPT_MS) -> None:
        self.items[at].prompts.give(est_ms, tenant)

    def held_back_ms(
        self,
        tenant: str = "flood",
        num_tokens: int = 1000,
        priority: Priority = Priority.STANDARD,
    ) -> float:
        asked = self.asked(tenant, num_tokens, priority)
        self.spread.asks(asked)
        return self.spread.held_back_ms(asked, self.items)

    def comes(self, tenant: str, priority: Priority = Priority.STANDARD) -> None:
        self.spread.asks(self.asked(tenant, 1000, priority))

    def asked(self, tenant: str, num_tokens: int, priority: Priority) -> Asked:
        return Asked(
            tenant=tenant,
            priority=priority,
            came_s=self.clock(),
            deadline=Deadline.after(60.0, self.clock),
            need=Need(prompt_tokens=num_tokens),
            prospect=Nothing(),
        )


@pytest.fixture
def turns() -> Turns:
    """Three workers have begun prompts of the flood in this moment, and one is free."""
    turns = Turns()
    for at in range(3):
        turns.compute(at)
    turns.comes("victim")
    return turns


def test_the_last_turn_is_held_back_until_the_next_end_is_near(turns: Turns) -> None:
    near_ms = CLOSE * PROMPT_MS / 4
    held_ms = turns.held_back_ms()
    assert held_ms == pytest.approx(PROMPT_MS - MAX_AHEAD_MS - near_ms)
    turns.clock.advance(held_ms / 1000 + 0.001)
    assert turns.held_back_ms() == 0.0


def test_another_tenant_has_it_at_once(turns: Turns) -> None:
    assert turns.held_back_ms("victim") == 0.0


def test_nothing_is_held_back_where_nobody_else_has_asked_for_a_while(turns: Turns) -> None:
    turns.clock.advance(0.1)
    assert turns.held_back_ms() > 0.0
    turns = Turns()
    turns.comes("victim")
    turns.clock.advance(ACTIVE_S + 0.1)
    for at in range(3):
        turns.compute(at)
    assert turns.held_back_ms() == 0.0


def test_a_lower_class_is_not_waited_for(turns: Turns) -> None:
    alone = Turns()
    for at in range(3):
        alone.compute(at)
    alone.comes("victim", Priority.BATCH)
    assert alone.held_back_ms() == 0.0
    alone.comes("victim", Priority.INTERACTIVE)
    assert alone.held_back_ms() > 0.0


def test_a_tenant_that_has_not_all_turns_is_held_back_by_nothing(turns: Turns) -> None:
    mixed = Turns()
    for at, tenant in enumerate(("flood", "flood", "victim")):
        mixed.compute(at, tenant)
    mixed.comes("victim")
    assert mixed.held_back_ms() == 0.0


def test_two_free_turns_and_a_single_worker_are_nobodys_to_hold() -> None:
    two, one = Turns(5), Turns(1)
    for at in range(3):
        two.compute(at)
    for each in (two, one):
        each.comes("victim")
        assert each.held_back_ms() == 0.0


def test_a_short_prompt_is_not_held_back_for_long_ones() -> None:
    turns = Turns()
    for at in range(3):
        turns.compute(at, est_ms=60_000.0)
    turns.comes("victim")
    assert turns.held_back_ms(num_tokens=100) == 0.0


def test_however_many_tenants_ask_no_more_than_two_of_a_class_are_remembered() -> None:
    turns = Turns()
    for number in range(1000):
        turns.comes(f"tenant-{number}")
    assert [len(last) for last in turns.spread._last] == [0, 2, 0]
