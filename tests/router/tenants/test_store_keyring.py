"""Keys in the store: known at every router within a second, and kept while the store is away."""

from __future__ import annotations

import pytest

from cluster.errors import NotReady, Unauthenticated
from router.store.errors import StoreAway
from router.store.shared_store import SharedStore
from router.tenants.api_key import KeyTerms, new_key
from router.tenants.keyring import KnownKeys
from router.tenants.limit_store import MemoryLimits
from router.tenants.store_keyring import StoreKeyring
from router.tenants.stored_keys import SLICE, StoredKeys
from tests.manual_clock import ManualClock
from tests.redis_server import RedisServer
from tests.router.store.relay import Relay
from tests.router.store.stores import NAMES, new_store, running, until


def ring_of(store: SharedStore) -> StoreKeyring:
    """Whose looks a test takes by hand."""
    return StoreKeyring(store, KnownKeys(MemoryLimits(ManualClock())))


class Operator:
    """Who makes keys, with a connection of their own."""

    def __init__(self, store: SharedStore) -> None:
        self._keys = StoredKeys(NAMES, lambda commands: store.ask(*commands))

    async def create(self, tenant: str) -> str:
        record, key = new_key(tenant, KeyTerms(weight=2.0))
        await self._keys.add(record)
        return key

    async def revoke(self, key: str) -> None:
        await self._keys.remove([key.split("-")[1]])


def lets_in(ring: StoreKeyring, key: str) -> bool:
    try:
        return bool(ring.let_in(f"Bearer {key}").name)
    except Unauthenticated:
        return False


async def test_a_key_is_known_after_one_look_and_refused_after_one(
    redis_server: RedisServer,
) -> None:
    store, office = new_store(redis_server.url), new_store(redis_server.url)
    rings, operator = [ring_of(store) for _ in range(3)], Operator(office)
    async with running(store, office):
        key, other = await operator.create("acme"), await operator.create("umbrella")
        for ring in rings:
            await ring.look()
            assert lets_in(ring, key) and lets_in(ring, other)
            tenant = ring.let_in(f"Bearer {key}")
            assert (tenant.name, tenant.weight) == ("acme", 2.0)
        await operator.revoke(key)
        for ring in rings:
            await ring.look()
            assert not lets_in(ring, key) and lets_in(ring, other)


async def test_a_revoked_key_is_refused_also_while_others_are_being_made(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time the router looks whether something has changed, something has."""
    store, office = new_store(redis_server.url), new_store(redis_server.url)
    ring, operator = ring_of(store), Operator(office)
    stamp = ring._keys.stamp

    async def changing() -> tuple[bytes | None, bytes | None]:
        await operator.create("new")
        return await stamp()

    async with running(store, office):
        key, other = await operator.create("acme"), await operator.create("umbrella")
        await ring.look()
        monkeypatch.setattr(ring._keys, "stamp", changing)
        await operator.revoke(key)
        await ring.look()
        assert not lets_in(ring, key) and lets_in(ring, other)


async def test_nobody_is_let_in_before_the_keys_are_read(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    ring = ring_of(store)
    assert ring.why_not_ready() is not None
    with pytest.raises(NotReady):
        ring.let_in("Bearer sk-1-2")
    async with running(store):
        await ring.look()
        assert ring.why_not_ready() is None
        with pytest.raises(Unauthenticated):
            ring.let_in("Bearer sk-1-2")


async def test_the_keys_stay_in_force_while_the_store_is_away(redis_server: RedisServer) -> None:
    async with Relay(redis_server) as wire:
        store, office = new_store(wire.url), new_store(redis_server.url)
        ring, operator = ring_of(store), Operator(office)
        async with running(store, office):
            key = await operator.create("acme")
            await ring.look()
            await wire.cut()
            await until(lambda: not store.is_there)
            with pytest.raises(StoreAway):
                await ring.look()
            assert lets_in(ring, key)
            await operator.revoke(key)
            await wire.mend()
            await until(lambda: store.is_there)
            await ring.look()
            assert not lets_in(ring, key)


async def test_an_emptied_store_has_all_keys_again_and_none_that_was_revoked(
    redis_server: RedisServer,
) -> None:
    store, office = new_store(redis_server.url), new_store(redis_server.url)
    rings, operator = [ring_of(store) for _ in range(2)], Operator(office)
    async with running(store, office):
        key, revoked = await operator.create("acme"), await operator.create("umbrella")
        for ring in rings:
            await ring.look()
        await operator.revoke(revoked)
        first, late = rings
        await first.look()
        redis_server.do("FLUSHALL")
        new = await operator.create("initech")
        await late.look()  # it has not heard of the revocation
        for ring in (*rings, *rings):
            await ring.look()
        after = ring_of(store)
        await after.look()
        for ring in (*rings, after):
            assert lets_in(ring, key) and lets_in(ring, new)
            assert not lets_in(ring, revoked)


async def test_a_router_that_starts_at_an_emptied_store_takes_no_key_from_the_others(
    redis_server: RedisServer,
) -> None:
    store, office = new_store(redis_server.url), new_store(redis_server.url)
    old, operator = [ring_of(store) for _ in range(2)], Operator(office)
    async with running(store, office):
        key, revoked = await operator.create("acme"), await operator.create("umbrella")
        for ring in old:
            await ring.look()
        await operator.revoke(revoked)
        await old[0].look()
        redis_server.do("FLUSHALL")
        fresh = ring_of(store)
        for ring in (fresh, *old, *old, fresh):
            await ring.look()
        for ring in (*old, fresh):
            assert lets_in(ring, key) and not lets_in(ring, revoked)


async def test_an_older_snapshot_gives_no_revoked_key_back_and_takes_no_newer_one(
    redis_server: RedisServer,
) -> None:
    store, office = new_store(redis_server.url), new_store(redis_server.url)
    rings, operator = [ring_of(store) for _ in range(2)], Operator(office)
    async with running(store, office):
        revoked = await operator.create("acme")
        for ring in rings:
            await ring.look()
        redis_server.do("SAVE")
        newer = await operator.create("umbrella")
        await operator.revoke(revoked)
        for ring in rings:
            await ring.look()
        redis_server.kill()
        await until(lambda: not store.is_there)
        redis_server.start()
        await until(lambda: store.is_there)
        for ring in (*rings, *rings):
            await ring.look()
            assert lets_in(ring, newer) and not lets_in(ring, revoked)


async def test_an_older_snapshot_that_has_climbed_to_the_same_version_is_read_again(
    redis_server: RedisServer,
) -> None:
    store, office = new_store(redis_server.url), new_store(redis_server.url)
    ring, operator = ring_of(store), Operator(office)
    async with running(store, office):
        old = await operator.create("acme")
        await ring.look()
        redis_server.do("SAVE")
        lost = await operator.create("umbrella")
        await ring.look()
        version = redis_server.do("GET", NAMES.of_all("keys", "version"))
        redis_server.kill()
        await until(lambda: not store.is_there and not office.is_there)
        redis_server.start()
        await until(lambda: store.is_there and office.is_there)
        new = await operator.create("initech")
        assert redis_server.do("GET", NAMES.of_all("keys", "version")) == version
        await ring.look()
        assert all(lets_in(ring, key) for key in (old, lost, new))


async def test_keys_that_the_store_alone_has_dropped_come_back(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    ring, operator = ring_of(store), Operator(store)
    async with running(store):
        key = await operator.create("acme")
        await ring.look()
        redis_server.do("DEL", NAMES.of_all("keys"))
        new = await operator.create("umbrella")
        await ring.look()
        assert lets_in(ring, key) and lets_in(ring, new)


async def test_many_keys_are_read_in_slices_and_what_is_none_is_nobodys(
    redis_server: RedisServer,
) -> None:
    store = new_store(redis_server.url)
    ring, operator = ring_of(store), Operator(store)
    async with running(store):
        keys = [await operator.create(f"tenant-{n}") for n in range(3 * SLICE)]
        await store.ask(("HSET", NAMES.of_all("keys"), "odd", b'{"id": 5}'))
        await ring.look()
        assert all(lets_in(ring, key) for key in keys)
