"""Two routers and one Redis: keys and limits hold at both, and no client hears of its faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest

from cluster.common_options import StoreOptions
from router.store.patience import Patience
from router.store.shared_store import SharedStore
from router.tenants.api_key import KeyRecord, KeyTerms, new_key
from router.tenants.stored_keys import StoredKeys
from tests.redis_server import RedisServer
from tests.router.front_fakes import says
from tests.router.store.stores import NAMES, PATIENT, STRICT, new_store, running, until
from tests.router.test_router_process import NUM_ROUTERS, running_router

ONE = {"prompt": "Hi", "max_tokens": 1}


class Fleet:
    """As a client has it: two doors; and as its operator has it: a store."""

    def __init__(
        self, stores: list[SharedStore], doors: list[httpx.AsyncClient], office: SharedStore
    ) -> None:
        self.stores = stores
        self.doors = doors
        self.keys = StoredKeys(NAMES, lambda commands: office.ask(*commands))

    async def create(self, tenant: str, **terms: float) -> tuple[KeyRecord, str]:
        record, key = new_key(tenant, KeyTerms(**terms))  # type: ignore[arg-type]
        await self.keys.add(record)
        return record, key

    async def status(self, door: int, key: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        answer = await self.doors[door].post("/v1/completions", json=ONE, headers=headers)
        return answer.status_code

    async def until_both_say(self, status: int, key: str) -> None:
        async with asyncio.timeout(60):
            while {await self.status(door, key) for door in range(NUM_ROUTERS)} != {status}:
                pass


@asynccontextmanager
async def fleet(redis: RedisServer, patience: Patience = PATIENT) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        office = new_store(redis.url)
        await stack.enter_async_context(running(office))
        stores = [new_store(redis.url, patience) for _ in range(NUM_ROUTERS)]
        doors = []
        for store in stores:
            terms = {"api_keys": "store", "store": StoreOptions(store=redis.url)}
            router = await stack.enter_async_context(
                running_router(says("Hello"), shared=store, **terms)
            )
            door = httpx.AsyncClient(base_url=f"http://{router.addresses.http}", timeout=60)
            doors.append(await stack.enter_async_context(door))
        yield Fleet(stores, doors, office)


async def test_a_key_is_good_at_both_doors_until_it_is_revoked(redis_server: RedisServer) -> None:
    async with fleet(redis_server) as both:
        record, key = await both.create("acme")
        await both.until_both_say(200, key)
        await both.keys.remove([record.id])
        await both.until_both_say(401, key)
        assert [(await door.get("/health")).status_code for door in both.doors] == [200, 200]


async def test_what_a_key_asks_at_one_door_counts_at_the_other(redis_server: RedisServer) -> None:
    async with fleet(redis_server) as both:
        _, key = await both.create("acme", requests_per_minute=0.6)  # four at once
        _, free = await both.create("umbrella")
        await both.until_both_say(200, free)
        answers = [await both.status(number % 2, key) for number in range(6)]
        assert answers == [200, 200, 200, 200, 429, 429]


@pytest.mark.parametrize("fault", ["killed", "stalled", "wiped"])
async def test_no_client_hears_of_a_store_that_fails(redis_server: RedisServer, fault: str) -> None:
    async with fleet(redis_server, STRICT) as both:
        _, key = await both.create("acme", requests_per_minute=600_000, input_tokens_per_minute=1e9)
        await both.until_both_say(200, key)
        statuses: list[int] = []
        is_over = asyncio.Event()

        async def ask(door: int) -> None:
            while not is_over.is_set():
                statuses.append(await both.status(door, key))

        asking = [asyncio.create_task(ask(number % 2)) for number in range(4)]
        {"killed": redis_server.kill, "stalled": redis_server.stall}.get(
            fault, lambda: redis_server.do("FLUSHALL")
        )()
        if fault != "wiped":
            await until(lambda: not any(store.is_there for store in both.stores))
            so_far = len(statuses)
            await until(lambda: len(statuses) > so_far + 20)
            {"killed": redis_server.start, "stalled": redis_server.go_on}[fault]()
        await until(lambda: all(store.is_there for store in both.stores))
        so_far = len(statuses)
        await until(lambda: len(statuses) > so_far + 20)
        is_over.set()
        await asyncio.gather(*asking)
        assert set(statuses) == {200}
