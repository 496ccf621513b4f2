"""Who gets room of the fleet, who waits for it, and who passes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import cast

from cluster.deadline import Deadline
from cluster.errors import QueueFull
from cluster.generation import EngineLoad
from cluster.identity import Role, WorkerKey
from cluster.membership.member import MemberState
from router.dispatch.admission import Admission
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.asked import Asked
from router.dispatch.fleet_room import FleetRoom, Lack
from router.dispatch.kept_worker import MAX_PASSED, KeptWorker
from router.dispatch.outlook import Outlook
from router.fleet.changes import Changes
from router.fleet.cooldown import Cooldown
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.need import Need
from router.telemetry.request_arrival import RequestArrival
from router.tenants.priority import Priority
from tests.manual_clock import ManualClock
from tests.router.planes import member_of

NUM_SEATS = 16
STEP_MS = 10.0
LONG_TOKENS = 1000
"""Of an answer: ten seconds."""


@dataclass(slots=True)
class Cached:
    """A prospect: so many tokens of its prompt are at every worker."""

    num_tokens: int = 0

    def is_local(self, line_ms: float) -> bool:
        return False

    def cached_tokens(self, key: WorkerKey) -> int:
        return self.num_tokens

    def outlook(self) -> Outlook | None:
        return None


@dataclass(slots=True)
class Workers:
    """Decode workers that hold what they are told, and a door before them."""

    clock: ManualClock
    items: list[FleetMember]
    admission: Admission
    changes: Changes
    asked: dict[str, asyncio.Task[AdmissionLease]] = field(default_factory=dict)
    computes: FleetMember | None = None
    """Who gets the prompt of each that is served, and is busy with it; None: nobody is."""
    arrivals: dict[str, RequestArrival] = field(default_factory=dict)

    async def ask(
        self,
        name: str,
        need: Need,
        cached_tokens: int = 0,
        priority: Priority = Priority.STANDARD,
        *,
        within_s: float = 1000.0,
    ) -> None:
        asked = Asked(
            came_s=self.clock(),
            deadline=Deadline.after(within_s, self.clock),
            need=need,
            prospect=Cached(cached_tokens),
            priority=priority,
            arrival=self.arrivals.setdefault(name, RequestArrival(name)),
        )
        self.asked[name] = asyncio.create_task(self._admitted(asked))
        await self._settled()

    async def served(self) -> list[str]:
        await self._settled()
        return [name for name, task in self.asked.items() if task.done()]

    @property
    def kept(self) -> KeptWorker | None:
        room = self.admission._room
        assert isinstance(room, FleetRoom)
        return room._kept

    async def _admitted(self, asked: Asked) -> AdmissionLease:
        lease = await self.admission.admit(asked)
        lease.goes_to(None if self.computes is None else self.computes.prompts.give(1e6))
        return lease

    async def _settled(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    def end(self, name: str) -> None:
        self.asked[name].result().release()

    def say(self, **load: int) -> None:
        said = EngineLoad(decode_step_ms=STEP_MS, **load)
        for item in self.items:
            item.state = replace(item.state, load=said)
            item.room.heard(said)


@asynccontextmanager
async def workers(num: int, **options: int) -> AsyncIterator[Workers]:
    clock = ManualClock()
    items = [
        FleetMember(
            MemberState.joined(
                member_of(
                    Role.DECODE, f"d{at}", max_num_seqs=NUM_SEATS, max_context_tokens=100_000
                ),
                0.0,
            ),
            cooldown=Cooldown(clock),
        )
        for at in range(num)
    ]
    members = _Members(items)
    room = FleetRoom(cast(Fleet, members), clock)
    room._look_up()
    given = {"max_running": 1024, "max_queued": 256} | options
    admission = Admission(**given, room=room, clock=clock)
    found = Workers(clock, items, admission, members.changes)
    found.say()
    try:
        yield found
    finally:
        for task in found.asked.values():
            task.cancel()
        await asyncio.gather(*found.asked.values(), return_exceptions=True)


class _Members:
    def __init__(self, items: list[FleetMember]) -> None:
        self.changes = Changes()
        self._items = items

    def served(self, role: Role) -> list[FleetMember]:
        return list(self._items) if role is Role.DECODE else []


def one(answer_tokens: int = LONG_TOKENS) -> Need:
    return Need(1, 10, answer_tokens)


ALL_SEATS = Need(NUM_SEATS, 10, NUM_SEATS * 10)


async def test_who_needs_many_seats_keeps_one_worker_and_nobody_back_from_the_others() -> None:
    async with workers(2) as fleet:
        await fleet.ask("a", one())
        for item in fleet.items[1:]:
            item.room.promised_seqs += 1  # somebody is at each
        await fleet.ask("large", ALL_SEATS)
        for number in range(20):
            await fleet.ask(f"small-{number}", one())
        served = await fleet.served()
        assert len(served) == 1 + NUM_SEATS - 1, "at the other worker, to its last seat"
        assert "large" not in served
        assert sorted(item.room.promised_seqs for item in fleet.items) == [1, NUM_SEATS]


async def test_a_kept_worker_comes_free_for_whom_it_is_kept_for() -> None:
    async with workers(1) as fleet:
        for number in range(NUM_SEATS):
            await fleet.ask(f"first-{number}", one())
        await fleet.ask("large", ALL_SEATS)
        await fleet.ask("small", one(LONG_TOKENS + 1))
        for number in range(NUM_SEATS):
            assert "large" not in await fleet.served()
            fleet.end(f"first-{number}")
        assert "large" in await fleet.served() and "small" not in await fleet.served()
        fleet.end("large")
        assert "small" in await fleet.served()


async def test_one_that_a_worker_was_kept_for_has_the_next_turn_at_prompts() -> None:
    """Those whose time is shorter come first in line, and would take every turn."""
    async with workers(2) as fleet:
        await fleet.ask("a", one())
        kept, other = fleet.items[1], fleet.items[0]
        kept.room.promised_seqs += 1  # somebody is there
        await fleet.ask("large", ALL_SEATS)
        fleet.say(prefill_token_ms=1)
        turns = [item.prompts.give(1e6) for item in fleet.items]
        kept.room.promised_seqs -= 1
        for number in range(3):
            await fleet.ask(f"small-{number}", one(), within_s=100.0)
        assert await fleet.served() == ["a"]
        fleet.computes = other
        turns[0].over()
        fleet.admission.look()
        assert await fleet.served() == ["a", "large"]


async def test_one_of_a_higher_class_has_it_before() -> None:
    async with workers(2) as fleet:
        await fleet.ask("a", one())
        kept, other = fleet.items[1], fleet.items[0]
        kept.room.promised_seqs += 1
        await fleet.ask("large", ALL_SEATS)
        fleet.say(prefill_token_ms=1)
        turns = [item.prompts.give(1e6) for item in fleet.items]
        kept.room.promised_seqs -= 1
        await fleet.ask("urgent", one(), priority=Priority.INTERACTIVE)
        fleet.computes = other
        turns[0].over()
        fleet.admission.look()
        assert await fleet.served() == ["a", "urgent"]


async def test_what_one_lacks_is_what_it_lacks_now() -> None:
    async with workers(1, max_running=2) as fleet:
        await fleet.ask("a", one())
        fleet.items[0].room.promised_seqs = NUM_SEATS
        for name in ("b", "c"):
            await fleet.ask(name, one())
            assert fleet.arrivals[name].lacked == Lack.SEATS
        fleet.items[0].room.promised_seqs = 1
        fleet.admission.look()
        assert await fleet.served() == ["a", "b"]
        assert fleet.arrivals["c"].lacked == Lack.PLACES


async def test_who_will_be_over_by_then_passes_and_who_will_not_does_not() -> None:
    async with workers(1) as fleet:
        await fleet.ask("long", one(LONG_TOKENS))
        await fleet.ask("large", ALL_SEATS)
        await fleet.ask("longer", one(LONG_TOKENS + 1))
        await fleet.ask("short", one(LONG_TOKENS // 2))
        assert await fleet.served() == ["long", "short"]
        fleet.clock.advance(LONG_TOKENS * STEP_MS / 1000)
        await fleet.ask("late", one(1))
        assert await fleet.served() == ["long", "short", "late"], "the moment is put off"
        fleet.clock.advance(LONG_TOKENS * STEP_MS / 1000)
        await fleet.ask("later", one(1))
        assert await fleet.served() == ["long", "short", "late"], "once"
        for name in ("long", "short", "late"):
            fleet.end(name)
        assert "large" in await fleet.served()


async def test_no_more_pass_at_a_kept_worker_than_is_said() -> None:
    async with workers(1) as fleet:
        await fleet.ask("long", one())
        await fleet.ask("large", ALL_SEATS)
        for number in range(2 * MAX_PASSED):
            await fleet.ask(f"short-{number}", one(1))
            if f"short-{number}" in await fleet.served():
                fleet.end(f"short-{number}")
        assert len(await fleet.served()) == 1 + MAX_PASSED


async def test_who_leaves_the_line_keeps_no_worker() -> None:
    async with workers(1) as fleet:
        await fleet.ask("long", one(10))
        await fleet.ask("large", ALL_SEATS)
        await fleet.ask("longer", one())
        assert await fleet.served() == ["long"]
        fleet.asked["large"].cancel()
        assert "longer" in await fleet.served()


async def test_who_needs_more_blocks_than_are_free_lets_those_pass_who_need_fewer() -> None:
    async with workers(2) as fleet:
        fleet.say(total_blocks=1000, free_blocks=1000)
        await fleet.ask("a", Need(1, 1000, 1000))
        fleet.items[1].room.promised_seqs += 1
        await fleet.ask("large", Need(1, 3000, 2000))
        await fleet.ask("as large", Need(1, 3000, 2000))
        await fleet.ask("small", Need(1, 100, 100))
        assert await fleet.served() == ["a", "small"]


async def test_what_a_worker_has_cached_of_a_prompt_needs_no_room() -> None:
    async with workers(1) as fleet:
        await fleet.ask("first", Need(1, 10, 10))
        fleet.say(total_blocks=1000, free_blocks=100)
        await fleet.ask("unknown", Need(1, 2000, 100))
        assert await fleet.served() == ["first"]
        fleet.asked["unknown"].cancel()
        await fleet.ask("known", Need(1, 2000, 100), cached_tokens=1800)
        assert "known" in await fleet.served()
        assert fleet.items[0].room.promised_tokens == 20 + 300


async def test_a_worker_that_rests_is_full_all_the_same() -> None:
    async with workers(1) as fleet:
        for number in range(NUM_SEATS + 5):
            await fleet.ask(f"r{number}", one())
        fleet.items[0].cooldown.failed()
        fleet.admission.look()
        assert len(await fleet.served()) == NUM_SEATS
        fleet.end("r0")
        assert len(await fleet.served()) == NUM_SEATS + 1


async def test_who_waits_for_workers_may_have_the_places_of_those_that_do_not_run() -> None:
    async with workers(8, max_queued=4, max_running=20) as fleet:
        for item in fleet.items:
            item.state = replace(item.state, load=EngineLoad(prefill_token_ms=1.0))
            item.prompts.give(1000.0)
        for number in range(30):
            await fleet.ask(f"r{number}", Need(1, 100, 10))
        refused = [fleet.asked[name].exception() for name in await fleet.served()]
        assert all(isinstance(error, QueueFull) for error in refused)
        assert len(refused) == 30 - 20 - 4
