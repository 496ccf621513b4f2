"""The store is there, and no packet comes through: nobody's connection ends, and nobody is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from cluster.process.background import Background, nothing_needed
from router.control.plane import FleetPlane
from router.store.shared_store import SharedStore
from router.tenants.limits import TokenBudget
from router.tenants.shared_limits import SharedLimits
from tests.redis_server import RedisServer
from tests.router.sharing.circles import circle_of, routers_of, worker_of
from tests.router.store.lossy_network import lossy_network
from tests.router.store.relay import Relay
from tests.router.store.stores import STRICT, new_store, until

NUM_ROUTERS = 3
BUDGET = TokenBudget("key/budget", 60, 36_000)
"""However long a test takes."""
SLACK = 2 * NUM_ROUTERS
"""Calls that were under way when packets were lost, and what others had not heard of then."""


class Fleet:
    """Three routers, and one limit that they share."""

    def __init__(self, stores: list[SharedStore], planes: list[FleetPlane]) -> None:
        self.stores, self.planes = stores, planes
        self.limits: list[SharedLimits] = []

    async def take(self, at: int, units: int) -> int:
        """As one after the other is let in, at that router."""
        taken = 0
        while taken < units and await self.limits[at].take([(BUDGET, 1)]) is None:
            taken += 1
        return taken

    async def take_in_turns(self, units: int) -> int:
        """So that each knows what all have taken, but for the last calls."""
        return sum([await self.take(number % NUM_ROUTERS, 1) for number in range(units)])

    async def use_up(self) -> int:
        """Units that all of them let in until each refuses."""
        return sum([await self.take(at, 1000) for at in range(NUM_ROUTERS)])

    def are_together(self) -> bool:
        """All reach the store, have told it all, and count each other."""
        alive = {circle_of(plane).num_alive for plane in self.planes}
        untold = any(limits.num_untold for limits in self.limits)
        return all(store.is_there for store in self.stores) and alive == {3} and not untold


@asynccontextmanager
async def fleet_at(urls: list[str]) -> AsyncIterator[Fleet]:
    """One router for each way to the store."""
    stores = [new_store(url, STRICT) for url in urls]
    fleet = Fleet(stores, [])
    fleet.limits = [SharedLimits(store, lambda: NUM_ROUTERS) for store in stores]
    background = Background(nothing_needed)
    async with routers_of(stores) as fleet.planes:
        try:
            for limits in fleet.limits:
                background.keep("limits", limits.keep_told)
            yield fleet
        finally:
            await background.close()


async def _know_what_the_first_gives(fleet: Fleet) -> None:
    first, *others = fleet.planes
    share = worker_of(first).assign("new", num_tokens=100, prefill_tokens=60)
    await until(lambda: all(worker_of(plane).elsewhere.num_requests == 1 for plane in others))
    share.release()


async def _lose_and_find(
    fleet: Fleet, cut: range, drop: Callable[[], None], heal: Callable[[], None]
) -> None:
    """Half of sixty units is spent before; one that is cut off may let in a third of the rest."""
    assert await fleet.take_in_turns(30) == 30
    drop()
    alone = [await fleet.take(at, 5) for at in cut]
    assert alone == [5] * len(cut), "nobody is refused for the store"
    await until(lambda: not any(fleet.stores[at].is_there for at in cut))
    assert [circle_of(plane).num_alive for plane in fleet.planes] == [NUM_ROUTERS] * NUM_ROUTERS
    taken = sum(alone) + await fleet.use_up()
    of_the_store = 0 if len(cut) == NUM_ROUTERS else 30
    assert taken <= 10 * len(cut) + of_the_store + SLACK
    heal()
    await until(fleet.are_together)
    await _know_what_the_first_gives(fleet)
    assert await fleet.use_up() <= SLACK


@pytest.mark.parametrize("num_cut", [1, NUM_ROUTERS])
async def test_routers_whose_packets_are_lost_have_their_part_and_come_together_again(
    redis_server: RedisServer, num_cut: int
) -> None:
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Relay(redis_server)) for _ in range(NUM_ROUTERS)]
        fleet = await stack.enter_async_context(fleet_at([wire.url for wire in wires]))

        def drop() -> None:
            for wire in wires[:num_cut]:
                wire.drop()

        def heal() -> None:
            for wire in wires:
                wire.heal()

        await _lose_and_find(fleet, range(num_cut), drop, heal)


async def test_a_network_that_loses_all_packets_refuses_nobody_and_is_found_again(
    tmp_path: Path,
) -> None:
    with lossy_network() as network:
        store = RedisServer(
            tmp_path, "--protected-mode", "no", host=network.there, network=network.name
        )
        with store as redis:
            async with fleet_at([redis.url] * NUM_ROUTERS) as fleet:
                await _lose_and_find(fleet, range(NUM_ROUTERS), network.drop, network.heal)
