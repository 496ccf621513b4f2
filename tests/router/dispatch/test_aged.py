"""Who has waited long is served, whatever comes: in virtual time, with one worker that computes one
prompt after the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from cluster.deadline import Deadline
from router.dispatch.admission import Admission
from router.dispatch.asked import PROMOTED_AFTER_S, Asked
from router.dispatch.fleet_room import Lack, Unreserved
from router.fairness.line import MAX_PASSED, Line, Ticket
from router.fleet.need import NOTHING, Need
from router.fleet.room_part import RoomPart
from router.telemetry.request_arrival import RequestArrival
from router.tenants.priority import Priority
from tests.router.dispatch.test_admission import Foretold
from tests.virtual_loop import run_virtually

PROMPT_S = 0.1
BOUND_S = (MAX_PASSED + 1) * PROMPT_S
"""For each that has waited long, once it has; and the one that is computed when it has."""


class OneTurn(Unreserved):
    """A fleet with seats for all, and one turn."""

    def __init__(self) -> None:
        self.is_free = True
        self.lacks = Lack.TURN

    def take(self, asked: Asked, line_ms: float) -> RoomPart | None:  # type: ignore[override]
        if not self.is_free:
            return None
        self.is_free = False
        return RoomPart(NOTHING, None)


class Crowd:
    """Whoever asks computes for PROMPT_S when it is served."""

    def __init__(self) -> None:
        self.clock = asyncio.get_running_loop().time
        self.room = OneTurn()
        self.admission = Admission(10_000, 10_000, room=self.room, clock=self.clock)
        self.served: Counter[str] = Counter()
        self.waits_s: dict[str, list[float]] = {}
        self._tasks = set[asyncio.Task[None]]()

    def ask(self, name: str, priority: Priority, due_s: float, tenant: str = "") -> None:
        asked = Asked(
            tenant=tenant or name,
            priority=priority,
            came_s=self.clock(),
            deadline=Deadline.after(due_s, self.clock),
            need=Need(),
            prospect=Foretold(),
        )
        task = asyncio.create_task(self._served(name, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _served(self, name: str, asked: Asked) -> None:
        lease = await self.admission.admit(asked)
        self.served[name] += 1
        self.waits_s.setdefault(name, []).append(self.clock() - asked.came_s)
        lease.goes_to(None)
        await asyncio.sleep(PROMPT_S)
        self.room.is_free = True
        lease.release()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def crowded(seconds: float, also: Callable[[Crowd], None]) -> Crowd:
    """Persons want twice of what there is, and so do others of the lowest class with near deadlines
    and one key; `also` asks once, when a line is there."""
    crowd = Crowd()
    end_s, is_first = crowd.clock() + seconds, True
    while crowd.clock() < end_s:
        for _ in range(2):
            crowd.ask("persons", Priority.INTERACTIVE, due_s=1000.0)
            crowd.ask("soon", Priority.BATCH, due_s=1000.0, tenant="batch")
        await asyncio.sleep(PROMPT_S)
        if is_first:
            also(crowd)
        is_first = False
    await crowd.close()
    return crowd


def one_of_the_lowest_class(crowd: Crowd, num: int = 1) -> None:
    for number in range(num):
        crowd.ask(f"aged-{number}", Priority.BATCH, due_s=3000.0, tenant="batch")


def test_one_that_others_of_its_tenant_go_before_for_ever_has_its_place_in_a_bounded_time() -> None:
    crowd = run_virtually(crowded(PROMOTED_AFTER_S + 60.0, one_of_the_lowest_class))
    (wait_s,) = crowd.waits_s["aged-0"]
    before_s = 5 * PROMPT_S
    """Those that came before it have waited as long."""
    assert PROMOTED_AFTER_S <= wait_s <= PROMOTED_AFTER_S + 5 * BOUND_S + before_s


def test_many_that_have_waited_long_have_their_places_in_the_order_of_coming_one_in_seventeen() -> (
    None
):
    num = 8
    crowd = run_virtually(
        crowded(
            PROMOTED_AFTER_S + 5 * num * BOUND_S, lambda crowd: one_of_the_lowest_class(crowd, num)
        )
    )
    waits_s = [crowd.waits_s[f"aged-{number}"][0] for number in range(num)]
    assert waits_s == sorted(waits_s)
    for number, wait_s in enumerate(waits_s):
        assert wait_s <= PROMOTED_AFTER_S + (number + 5) * BOUND_S + PROMPT_S


def test_persons_keep_seven_eighths_of_the_places_whoever_has_waited_long() -> None:
    crowd = run_virtually(crowded(60.0, one_of_the_lowest_class))
    assert crowd.served["persons"] >= 7 / 8 * crowd.served.total()


def test_it_is_next_for_a_turn_and_no_longer_asked_once_it_has_left() -> None:
    async def leaves() -> None:
        crowd = Crowd()
        for _ in range(3 * MAX_PASSED):
            crowd.ask("persons", Priority.INTERACTIVE, due_s=1000.0)
        await asyncio.sleep(0)
        crowd.ask("aged", Priority.BATCH, due_s=PROMOTED_AFTER_S / 2)
        await asyncio.sleep(2 * PROMOTED_AFTER_S)
        assert crowd.served["persons"] == 3 * MAX_PASSED
        assert crowd.admission.num_queued == 0
        await crowd.close()

    run_virtually(leaves())


class Old(Ticket):
    """One that has waited long, from the beginning."""

    __slots__ = ()

    @property
    def is_aged(self) -> bool:
        return True


def test_whoever_leaves_the_line_is_forgotten_by_age_as_well() -> None:
    line = Line(1)
    for number in range(1000):
        line.add(ticket := Old(tenant="t", level=0, weight=1.0, due_s=1.0, came_s=number))
        line.remove(ticket)
    assert len(line._by_age) <= 1 and line.aged() is None


@pytest.mark.parametrize("is_full", [True, False])
async def test_a_line_before_full_places_says_that_places_are_lacking(is_full: bool) -> None:
    """Though workers lacked something when they were asked last."""
    room = OneTurn()
    admission = Admission(1 if is_full else 2, 10, room=room)
    clock = asyncio.get_running_loop().time

    def asked() -> Asked:
        return Asked(
            came_s=clock(),
            deadline=Deadline.after(100.0, clock),
            need=Need(),
            prospect=Foretold(),
            arrival=RequestArrival(),
        )

    lease = await admission.admit(asked())
    waits = asked()
    task = asyncio.create_task(admission.admit(waits))
    await asyncio.sleep(0)
    assert waits.arrival.lacked == (Lack.PLACES if is_full else Lack.TURN)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    lease.release()
