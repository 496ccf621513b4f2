"""Two routers with lines of their own before one worker: what each promises of its seats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from router.fleet.need import Need
from router.fleet.request_share import GivenElsewhere
from router.fleet.room_part import RoomPart
from router.fleet.seat_part import SeatPart
from router.fleet.worker_room import WorkerRoom
from tests.router.dispatch.test_fleet_room import NUM_SEATS, Workers, one, workers

NAMES = ("a", "b")


class Beside:
    """Both routers, and what they say to each other: nothing between two words."""

    def __init__(self, first: Workers, second: Workers) -> None:
        self.doors = dict(zip(NAMES, (first, second), strict=True))
        self._num_asked = 0

    async def ask(self, name: str, need: Need | None = None) -> None:
        self._num_asked += 1
        await self.doors[name].ask(f"r{self._num_asked}", need or one())

    async def end_one(self, name: str, chance: Random) -> None:
        door = self.doors[name]
        served = [each for each in await door.served() if door.asked[each].result().is_held]
        if served:
            door.end(chance.choice(served))
            await door.served()

    def talk(self) -> None:
        """What each says now is heard by the other."""
        said = {
            name: (GivenElsewhere(num_seqs=self.promised(name)), door.admission.num_queued > 0)
            for name, door in self.doors.items()
        }
        for own, other in (NAMES, NAMES[::-1]):
            given, waits = said[other]
            [item] = self.doors[own].items
            part = SeatPart.of_router(own, [other] * waits, item.key, len(NAMES))
            item.hear_elsewhere(given, part)
            self.doors[own].admission.look()

    def promised(self, name: str) -> int:
        return self.doors[name].items[0].room.promised_seqs


@asynccontextmanager
async def two_routers() -> AsyncIterator[Beside]:
    async with workers(1) as first, workers(1) as second:
        yield Beside(first, second)


async def test_of_the_last_seats_one_at_most_is_promised_by_two_routers() -> None:
    """Where both have asked for it and their words cross."""
    async with two_routers() as beside:
        for name in NAMES:
            for _ in range(NUM_SEATS // 2 - 1):
                await beside.ask(name)
        beside.talk()
        for _ in range(2):
            await beside.ask("a")
        beside.talk()
        await beside.ask("b")
        beside.talk()
        for name in NAMES:
            await beside.ask(name)
        assert NUM_SEATS <= beside.promised("a") + beside.promised("b") <= NUM_SEATS + 1


@pytest.mark.parametrize("seed", range(5))
async def test_two_lines_share_a_worker_and_no_seat_is_promised_twice(seed: int) -> None:
    """Each has more than enough at all times, and hears the other now and then."""
    chance = Random(seed)
    async with two_routers() as beside:
        for name in NAMES:
            for _ in range(NUM_SEATS // 2):
                await beside.ask(name)
        beside.talk()
        for _ in range(400):
            for name in NAMES:
                while beside.doors[name].admission.num_queued < 3:
                    await beside.ask(name)
            if chance.random() < 0.3:
                beside.talk()
            await beside.end_one(chance.choice(NAMES), chance)
            assert beside.promised("a") + beside.promised("b") <= NUM_SEATS
        beside.talk()
        assert beside.promised("a") == beside.promised("b") == NUM_SEATS // 2


async def test_a_router_that_has_all_seats_leaves_another_its_part_as_its_own_requests_end() -> (
    None
):
    chance = Random(1)
    async with two_routers() as beside:
        for _ in range(2 * NUM_SEATS):
            await beside.ask("a")
        assert beside.promised("a") == NUM_SEATS
        beside.talk()
        for _ in range(NUM_SEATS):
            await beside.ask("b")
        assert beside.promised("b") == 0
        for _ in range(NUM_SEATS // 2):
            beside.talk()
            await beside.end_one("a", chance)
            beside.talk()
            assert beside.promised("a") + beside.promised("b") <= NUM_SEATS
        assert (beside.promised("a"), beside.promised("b")) == (NUM_SEATS // 2, NUM_SEATS // 2)


async def test_seats_that_no_other_router_wants_are_all_there_for_one() -> None:
    async with two_routers() as beside:
        await beside.ask("b")
        beside.talk()
        for _ in range(NUM_SEATS):
            await beside.ask("a")
        assert beside.promised("a") == (NUM_SEATS - 1) // (len(NAMES) + 1)
        num_words = 0
        while beside.promised("a") < NUM_SEATS - 1:
            beside.talk()
            await beside.doors["a"].served()
            num_words += 1
            assert num_words <= 7, "they come every 50 ms"


class Crossing:
    """Routers before one idle worker, as many of whose seats each wants as there are. Each hears
    the others every 50 ms, at a moment of its own, as they had spoken at theirs."""

    def __init__(self, num_routers: int, num_seats: int, chance: Random) -> None:
        self.chance = chance
        self.rooms = [WorkerRoom(num_seats, 16) for _ in range(num_routers)]
        self.said = [0] * num_routers
        self.speaks_at = [chance.randrange(50) for _ in self.rooms]
        for at in range(num_routers):
            self._hear(at)

    def run(self, num_ms: int) -> int:
        """The most that all together have promised at any moment."""
        most = 0
        for ms in range(num_ms):
            for at in self.chance.sample(range(len(self.rooms)), len(self.rooms)):
                if ms % 50 == self.speaks_at[at]:
                    self._hear(at)
                    self.said[at] = self.rooms[at].promised_seqs
                if self.rooms[at].has(one()):
                    RoomPart(one(), self.rooms[at])
            most = max(most, sum(room.promised_seqs for room in self.rooms))
        return most

    def _hear(self, at: int) -> None:
        elsewhere = GivenElsewhere(num_seqs=sum(self.said) - self.said[at])
        part = SeatPart(num_routers=len(self.rooms))
        self.rooms[at].promised_elsewhere(elsewhere, part)


@pytest.mark.parametrize(("num_routers", "num_over"), [(2, 1), (3, 3)])
@pytest.mark.parametrize("seed", range(20))
def test_out_of_an_idle_worker_routers_promise_hardly_more_than_there_is_between_two_words(
    num_routers: int, num_over: int, seed: int
) -> None:
    """Each took all that was free as it had heard: twice, and three times, of what there was."""
    crossing = Crossing(num_routers, NUM_SEATS, Random(seed))
    assert NUM_SEATS <= crossing.run(1000) <= NUM_SEATS + num_over


def test_the_last_seat_of_a_worker_is_promised_once_by_each_router_at_most() -> None:
    for num_seats in (1, 2, 3):
        crossing = Crossing(3, num_seats, Random(num_seats))
        assert num_seats <= crossing.run(1000) <= num_seats + 2


async def test_who_needs_several_seats_does_not_wait_for_another_router_to_have_none() -> None:
    async with two_routers() as beside:
        for _ in range(NUM_SEATS):
            await beside.ask("b")
        beside.talk()
        await beside.ask("a", Need(NUM_SEATS, 10, 100))
        assert beside.promised("a") == NUM_SEATS


async def test_prompts_that_others_have_sent_have_their_blocks_before_the_worker_says_so() -> None:
    async with two_routers() as beside:
        door = beside.doors["a"]
        await beside.ask("a", Need(1, 10, 10))
        door.say(total_blocks=1000, free_blocks=100)
        [item] = door.items
        item.hear_elsewhere(GivenElsewhere(1, num_seqs=1, coming_tokens=1000), SeatPart())
        free_tokens = 100 * item.member.pairing.block_size_tokens - item.room.promised_tokens - 1000
        assert not item.room.has(Need(1, free_tokens + 1, 0))
        assert item.room.has(Need(1, free_tokens, 0))


@pytest.mark.parametrize("max_seqs", [1, 2, 3, 16, 17])
@pytest.mark.parametrize("num", [1, 2, 3])
def test_the_parts_of_all_routers_are_all_seats_or_one_for_each(max_seqs: int, num: int) -> None:
    names = [f"router-{at}" for at in range(num)]
    parts = [SeatPart(num, turn).seats(max_seqs) for turn in range(len(names))]
    assert sum(parts) == max(max_seqs, num) and max(parts) - min(parts) <= 1
