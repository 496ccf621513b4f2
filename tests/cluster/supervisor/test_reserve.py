"""Spare workers: who is promoted, when, and what becomes of the lost one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from cluster.supervisor.places import Places, WarmWorker
from tests.cluster.supervisor.supervised_fleet import PlayedFleet
from tests.virtual_time import settle


@pytest.fixture
async def fleet() -> AsyncIterator[PlayedFleet]:
    """Two decode workers and a spare; prefill workers without."""
    played = PlayedFleet(prefill=1, decode=2, decode_warm_spares=1)
    yield played
    await played.reserve.close()


@pytest.fixture
async def whole(fleet: PlayedFleet) -> PlayedFleet:
    """The same, once all have come: decode-2 is the spare."""
    fleet.come("prefill-0", "decode-0", "decode-1", "decode-2")
    await settle()
    assert fleet.spares == ["decode-2/1"]
    fleet.ends.promoted.clear()
    return fleet


async def test_as_many_as_the_pool_has_places_are_promoted_and_the_rest_wait(
    fleet: PlayedFleet,
) -> None:
    fleet.come("decode-1", "prefill-0", "decode-2", "decode-0")
    await settle()
    assert fleet.ends.promoted == ["decode-1/1", "decode-2/1"]
    assert fleet.in_place == ["decode-1", "decode-2"] and fleet.spares == ["decode-0/1"]
    assert fleet.ends.num_closed == fleet.ends.num_links


async def test_the_first_start_is_over_once_every_place_is_taken(fleet: PlayedFleet) -> None:
    filled = asyncio.create_task(fleet.reserve.filled())
    fleet.ends.may_answer.clear()
    fleet.come("decode-0", "decode-1")
    await settle()
    assert not filled.done()
    fleet.die("decode-0")
    fleet.ends.may_answer.set()
    await settle()
    assert not filled.done(), "the one that was promoted first is gone"
    fleet.come("decode-2")
    await settle()
    assert filled.done()


async def test_a_fleet_without_spares_has_no_place_to_wait_for_and_speaks_to_nobody() -> None:
    fleet = PlayedFleet(prefill=1, decode=2)
    await fleet.reserve.filled()
    fleet.come("prefill-0", "decode-0", "decode-1")
    fleet.die("decode-0")
    await settle()
    assert fleet.ends.num_links == 0


async def test_a_pool_without_workers_has_no_spares_either() -> None:
    fleet = PlayedFleet(prefill=0, decode=1, warm_spares=2)
    assert [pool.num_workers for pool in fleet.pools] == [0, 3]


async def test_a_spare_takes_the_place_of_one_that_ends_and_that_comes_back_as_the_spare(
    whole: PlayedFleet,
) -> None:
    whole.die("decode-0")
    await settle()
    assert whole.ends.promoted == ["decode-2/1"] and whole.spares == []
    whole.come("decode-0")
    await settle()
    assert whole.ends.promoted == ["decode-2/1"] and whole.spares == ["decode-0/2"]


async def test_one_that_takes_no_requests_any_more_is_not_waited_for(whole: PlayedFleet) -> None:
    whole.leave("decode-1")
    await settle()
    assert whole.ends.promoted == ["decode-2/1"]
    whole.die("decode-1")  # the same loss, told again at its end
    whole.die("decode-0")
    await settle()
    assert whole.ends.promoted == ["decode-2/1"], "there is nobody left"
    whole.come("decode-0")
    await settle()
    assert whole.ends.promoted == ["decode-2/1", "decode-0/2"]


async def test_a_spare_that_ends_costs_nobody_a_place(whole: PlayedFleet) -> None:
    whole.die("decode-2")
    await settle()
    assert whole.ends.promoted == [] and whole.spares == []
    whole.come("decode-2")
    await settle()
    assert whole.spares == ["decode-2/2"]


async def test_a_spare_that_cannot_be_promoted_is_ended_and_the_next_one_gets_the_place() -> None:
    fleet = PlayedFleet(prefill=0, decode=1, warm_spares=2)
    fleet.come("decode-0", "decode-1", "decode-2")
    await settle()
    fleet.ends.refusing.add("decode-1/1")
    fleet.die("decode-0")
    await settle()
    assert fleet.ended == ["decode-1/1"]
    assert fleet.ends.promoted == ["decode-0/1", "decode-2/1"]
    assert fleet.in_place == ["decode-0", "decode-2"]
    fleet.die("decode-1")  # the end that was asked for
    await settle()
    assert fleet.ends.promoted == ["decode-0/1", "decode-2/1"] and fleet.spares == []


async def test_a_refusal_by_a_process_that_is_gone_ends_nobody_who_has_its_name_now(
    whole: PlayedFleet,
) -> None:
    whole.ends.refusing.add("decode-2/1")
    whole.ends.may_answer.clear()
    whole.die("decode-0")
    await settle()
    whole.die("decode-2")
    whole.come("decode-2")
    whole.ends.may_answer.set()
    await settle()
    assert whole.ended == [] and whole.ends.promoted == ["decode-2/2"]


async def test_a_fleet_that_is_to_end_promotes_nobody(whole: PlayedFleet) -> None:
    await whole.reserve.close()
    whole.leave("decode-0")
    whole.die("decode-1")
    await settle()
    assert whole.ends.promoted == []


@pytest.mark.parametrize("seed", range(20))
def test_places_hold_at_random(seed: int) -> None:
    """No more than there are places, no name twice, and no spare waits while a place is free."""
    chance, places = random.Random(seed), Places(2)
    placed: dict[str, WarmWorker] = {}
    for number in range(200):
        name = f"decode-{chance.randrange(4)}"
        if chance.random() < 0.6:
            placed.pop(name, None)
            places.come(WarmWorker(name, "decode", number, "here"))
        else:
            placed.pop(name, None)
            places.gone(name)
        chosen = places.fill()
        placed |= {worker.name: worker for worker in chosen}
        for worker in chosen:
            if chance.random() < 0.5:
                places.serves(worker)
        names = [spare.name for spare in places.spares]
        assert len(placed) <= 2 and not placed.keys() & set(names)
        assert len(placed) == 2 or not names
        assert all(places.has_placed(worker) for worker in placed.values())
        assert not places.all_serve or len(placed) == 2
