"""Planes of several routers that talk over one Redis, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from cluster.config import RouterOptions
from cluster.world import World
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.fleet.member import FleetMember
from router.sharing.circle import Circle, CirclePlace, own_name
from router.store.patience import Patience
from router.store.shared_store import SharedStore
from tests.redis_server import RedisServer
from tests.router.planes import prefill_member
from tests.router.store.stores import PATIENT, new_store, running, until


@asynccontextmanager
async def routers(
    redis: RedisServer, num_routers: int = 3, patience: Patience = PATIENT
) -> AsyncIterator[list[FleetPlane]]:
    """That talk, and have one prefill worker, which beats for nobody."""
    async with routers_of([new_store(redis.url, patience) for _ in range(num_routers)]) as planes:
        yield planes


@asynccontextmanager
async def routers_of(stores: list[SharedStore]) -> AsyncIterator[list[FleetPlane]]:
    """One for each store, which does not run yet."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(*stores))
        planes = []
        for number, store in enumerate(stores):
            place = CirclePlace(own_name(number), store)
            plane = FleetPlane(
                RouterOptions(worker_lease_s=3600), OwnModel(), World(), circle=place
            )
            await plane.start()
            stack.push_async_callback(plane.close)
            await plane.store.join(prefill_member())
            planes.append(plane)
        await until(lambda: all(circle_of(plane).num_alive == len(stores) for plane in planes))
        yield planes


def circle_of(plane: FleetPlane) -> Circle:
    assert plane.circle is not None
    return plane.circle


def worker_of(plane: FleetPlane) -> FleetMember:
    [item] = plane.fleet.members
    return item


def store_of(plane: FleetPlane) -> SharedStore:
    store = circle_of(plane)._talk._store
    assert isinstance(store, SharedStore)
    return store
