"""A worker that is kept for one who waits: for whom it is, how long, and who has it meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.dispatch.asked import PROMOTED_AFTER_S
from router.dispatch.next_look import NextLook
from router.fleet.need import Need
from router.tenants.priority import Priority
from tests.manual_clock import ManualClock
from tests.router.dispatch.test_fleet_room import ALL_SEATS, NUM_SEATS, one, workers
from tests.router.fake_decode_worker import until


async def test_a_higher_class_has_the_free_seats_of_a_worker_that_is_kept_for_a_lower_one() -> None:
    async with workers(1) as fleet:
        for number in range(6):
            await fleet.ask(f"first-{number}", one(10))
        await fleet.ask("large", ALL_SEATS, priority=Priority.BATCH)
        fleet.clock.advance(0.9 * PROMOTED_AFTER_S)
        for number in range(NUM_SEATS - 6):
            await fleet.ask(f"person-{number}", one(), priority=Priority.INTERACTIVE)
        served = await fleet.served()
        assert "large" not in served and len(served) == NUM_SEATS


@pytest.mark.parametrize("above", [Priority.INTERACTIVE, Priority.STANDARD])
@pytest.mark.parametrize("crowd", [Need(1, 10, 100), Need(NUM_SEATS // 2, 10, 100)])
async def test_a_large_request_of_the_lowest_class_has_its_place_however_many_come_above_it(
    above: Priority, crowd: Need
) -> None:
    """At each second half of what runs is over, and as much has come."""
    async with workers(1) as fleet:
        for number in range(NUM_SEATS):
            await fleet.ask(f"early-{number}", one(100), priority=above)
        await fleet.ask("large", ALL_SEATS, priority=Priority.BATCH)
        ended = set[str]()
        for _ in range(int(PROMOTED_AFTER_S) + 5):
            fleet.clock.advance(1.0)
            while fleet.admission.num_queued < NUM_SEATS:
                await fleet.ask(f"crowd-{len(fleet.asked)}", crowd, priority=above)
            running = [name for name in await fleet.served() if name not in ended]
            if "large" in running:
                return
            for name in running[: len(running) // 2 + 1]:
                ended.add(name)
                fleet.end(name)
        pytest.fail("it starves")


async def test_a_worker_is_kept_for_the_highest_class_that_lacks_room() -> None:
    async with workers(1) as fleet:
        await fleet.ask("first", one(100))
        await fleet.ask("large", ALL_SEATS, priority=Priority.BATCH)
        await fleet.ask("larger", ALL_SEATS, priority=Priority.INTERACTIVE)
        await fleet.ask("long", one(), priority=Priority.STANDARD)
        assert await fleet.served() == ["first"]
        fleet.end("first")
        assert await fleet.served() == ["first", "larger"]


@pytest.mark.parametrize("way", ["leaves", "drains", "drains unheard"])
async def test_a_worker_that_takes_no_work_any_more_is_kept_for_nobody(way: str) -> None:
    async with workers(2) as fleet:
        first, second = fleet.items
        await fleet.ask("short", one(10))
        second.room.promised_seqs += 1  # somebody whose end nobody foretells
        await fleet.ask("large", ALL_SEATS)
        assert fleet.kept is not None and fleet.kept._item is second
        if way != "leaves":
            second.state = replace(second.state, draining=True)
        if way != "drains unheard":
            fleet.items.remove(second)
            fleet.changes.announce()
        fleet.admission.look()
        assert fleet.kept is not None and fleet.kept._item is first


async def test_who_leaves_a_worker_that_has_room_makes_none() -> None:
    async with workers(2) as fleet:
        full, roomy = fleet.items
        for number in range(NUM_SEATS + 1):
            await fleet.ask(f"r{number}", one())
        room = fleet.admission._room
        assert room.in_vain(one()) == roomy.room.parts and len(roomy.room.parts) == 1
        assert room.in_vain(ALL_SEATS) == frozenset() and len(full.room.parts) == NUM_SEATS


async def test_a_sooner_look_is_not_lost_behind_a_later_one() -> None:
    looks = list[None]()
    next_look = NextLook(lambda: looks.append(None), ManualClock())
    for seconds in (3600.0, None, 0.0, 3600.0):
        next_look.within(seconds)
    await until(lambda: bool(looks))
    assert len(looks) == 1


@pytest.mark.parametrize("num_before", [1, 3, 40])
@pytest.mark.parametrize("above", [Priority.INTERACTIVE, Priority.STANDARD])
async def test_whom_a_worker_is_kept_for_has_it_also_when_others_have_come_before_it(
    num_before: int, above: Priority
) -> None:
    """A higher class, or the same one with a sooner deadline."""
    its_class = Priority.BATCH if above is Priority.INTERACTIVE else above
    async with workers(1) as fleet:
        for number in range(NUM_SEATS):
            await fleet.ask(f"early-{number}", one(100), priority=Priority.STANDARD)
        await fleet.ask("large", Need(NUM_SEATS, 10, 3000), priority=its_class)
        fleet.clock.advance(PROMOTED_AFTER_S + 1)
        for number in range(num_before):
            await fleet.ask(f"crowd-{number}", one(1000), priority=above, within_s=500.0)
        for number in range(NUM_SEATS):
            fleet.end(f"early-{number}")
        assert "large" in await fleet.served()
        fleet.end("large")
        assert "crowd-0" in await fleet.served()
