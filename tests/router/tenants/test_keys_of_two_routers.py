"""Two routers that follow the keys of one store, as they do in their processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cli.key_place import StorePlace
from cluster.errors import NotReady, Unauthenticated
from cluster.process.background import Background, nothing_needed
from router.tenants.api_key import new_key
from router.tenants.keyring import LOOK_INTERVAL_S, KnownKeys
from router.tenants.limit_store import MemoryLimits
from router.tenants.store_keyring import StoreKeyring
from tests.manual_clock import ManualClock
from tests.redis_server import RedisServer
from tests.router.store.stores import NAMES, new_store, running, until

TIMES_FASTER = 10


class Door:
    """Of one router. What it waits it counts, and waits a tenth of it."""

    def __init__(self, redis: RedisServer) -> None:
        self.store = new_store(redis.url)
        known = KnownKeys(MemoryLimits(ManualClock()))
        self.ring = StoreKeyring(self.store, known, sleep=self._sleep)
        self.waited_s = 0.0

    def lets_in(self, key: str) -> bool:
        try:
            return bool(self.ring.let_in(f"Bearer {key}").name)
        except (NotReady, Unauthenticated):
            return False

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / TIMES_FASTER)
        self.waited_s += seconds


class Office:
    """Who makes keys, by `splitserve keys`."""

    def __init__(self, redis: RedisServer) -> None:
        self._place = StorePlace(redis.url, NAMES.namespace)

    async def create(self, tenant: str) -> str:
        record, key = new_key(tenant)
        await asyncio.to_thread(self._place.add, record)
        return key

    async def revoke(self, key: str) -> None:
        await asyncio.to_thread(self._place.remove, key.split("-")[1])

    async def has(self, key: str) -> bool:
        return key.split("-")[1] in await asyncio.to_thread(self._place.read)


@asynccontextmanager
async def doors_of(redis: RedisServer) -> AsyncIterator[list[Door]]:
    """Two, ready."""
    doors = [Door(redis), Door(redis)]
    background = Background(nothing_needed)
    async with running(*(door.store for door in doors)):
        try:
            for door in doors:
                background.keep("API keys", door.ring.follow)
            await until(lambda: not any(door.ring.why_not_ready() for door in doors))
            yield doors
        finally:
            await background.close()


async def seen_within_a_second(doors: list[Door], is_so: Callable[[Door], bool]) -> bool:
    """From now on at each door, by what it waits: a look that has begun ends, and one follows."""
    before_s = [door.waited_s for door in doors]
    await until(lambda: all(map(is_so, doors)))
    waits = (door.waited_s - at_s for door, at_s in zip(doors, before_s, strict=True))
    return max(waits) <= LOOK_INTERVAL_S


async def test_a_key_is_made_and_revoked_by_the_operator_and_both_routers_know_within_a_second(
    redis_server: RedisServer,
) -> None:
    office = Office(redis_server)
    async with doors_of(redis_server) as doors:
        key = await office.create("acme")
        assert await seen_within_a_second(doors, lambda door: door.lets_in(key))
        await office.revoke(key)
        assert await seen_within_a_second(doors, lambda door: not door.lets_in(key))


async def test_a_store_that_comes_back_empty_has_the_keys_of_both_and_no_revoked_one(
    redis_server: RedisServer,
) -> None:
    office = Office(redis_server)
    async with doors_of(redis_server) as doors:
        key, revoked = await office.create("acme"), await office.create("umbrella")
        await until(lambda: all(door.lets_in(key) and door.lets_in(revoked) for door in doors))
        await office.revoke(revoked)
        await until(lambda: not any(door.lets_in(revoked) for door in doors))
        redis_server.kill()
        await until(lambda: not any(door.store.is_there for door in doors))
        redis_server.start()
        await until(lambda: all(door.store.is_there for door in doors))
        new = await office.create("initech")
        await until(lambda: all(door.lets_in(new) for door in doors))
        assert await office.has(key) and not await office.has(revoked)
        assert all(door.lets_in(key) and not door.lets_in(revoked) for door in doors)
        async with doors_of(redis_server) as later:
            assert all(door.lets_in(key) and not door.lets_in(revoked) for door in later)


async def test_a_store_that_is_emptied_under_both_routers_has_their_keys_again(
    redis_server: RedisServer,
) -> None:
    office = Office(redis_server)
    async with doors_of(redis_server) as doors:
        key = await office.create("acme")
        await until(lambda: all(door.lets_in(key) for door in doors))
        redis_server.do("FLUSHALL")
        new = await office.create("umbrella")
        await until(lambda: all(door.lets_in(new) and door.lets_in(key) for door in doors))
        assert await office.has(key) and await office.has(new)
