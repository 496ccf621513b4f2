"""A store answers while it is there, and nobody waits for one that is not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from router.store.errors import StoreAway
from router.store.script import StoreScript
from router.store.shared_store import SharedStore
from tests.redis_server import RedisServer
from tests.router.store.stores import PATIENT, STRICT, new_store, running, until


async def test_replies_come_to_whoever_asked(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    async with running(store):
        asked = [store.ask(("INCR", f"n{i % 7}"), ("ECHO", str(i))) for i in range(700)]
        replies = await asyncio.gather(*asked)
    assert [reply[1] for reply in replies] == [str(i).encode() for i in range(700)]
    assert sorted(reply[0] for reply in replies) == sorted([*range(1, 101)] * 7)


async def test_two_stores_see_one_redis(redis_server: RedisServer) -> None:
    first, second = new_store(redis_server.url), new_store(redis_server.url)
    async with running(first, second):
        await first.ask(("HSET", "h", "field", 1.5))
        assert await second.ask(("HGET", "h", "field")) == [b"1.5"]


async def test_a_script_is_known_wherever_the_store_comes_back(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    script = StoreScript("return {KEYS[1], ARGV[1]}")
    store.teach(script)
    async with running(store):
        assert await store.ask(script.call(["key"], [7])) == [[b"key", b"7"]]
        redis_server.do("SCRIPT", "FLUSH")
        with pytest.raises(StoreAway):
            await store.ask(script.call(["key"], [8]))
        await until(lambda: store.is_there)
        assert await store.ask(script.call(["key"], [9])) == [[b"key", b"9"]]


async def test_one_that_is_refused_is_told_and_others_are_not(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    async with running(store):
        await store.ask(("SET", "text", "of no number"))
        refused, fine = await asyncio.gather(
            store.ask(("INCR", "text")), store.ask(("INCR", "number")), return_exceptions=True
        )
        assert isinstance(refused, StoreAway)
        assert fine == [1]
        assert store.is_there


async def test_before_anybody_has_looked_the_store_is_away(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    assert not store.is_there
    with pytest.raises(StoreAway):
        await store.ask(("PING",))


@asynccontextmanager
async def killed(redis: RedisServer) -> AsyncIterator[None]:
    redis.kill()
    yield
    redis.start()


@asynccontextmanager
async def stalled(redis: RedisServer) -> AsyncIterator[None]:
    redis.stall()
    yield
    redis.go_on()


@asynccontextmanager
async def full(redis: RedisServer) -> AsyncIterator[None]:
    redis.do("CONFIG", "SET", "maxmemory", "1")
    yield
    redis.do("CONFIG", "SET", "maxmemory", "0")


@pytest.mark.parametrize("fault", [killed, stalled, full], ids=lambda fault: fault.__name__)
async def test_calls_end_when_the_store_is_lost_and_are_answered_when_it_is_back(
    redis_server: RedisServer, fault
) -> None:
    store = new_store(redis_server.url, STRICT if fault is stalled else PATIENT)
    changes: list[bool] = []
    store.watch(changes.append)
    async with running(store):
        async with fault(redis_server):
            with capture_logs() as lines:
                while store.is_there:
                    with contextlib.suppress(StoreAway):
                        await asyncio.gather(*(store.ask(("SET", "k", 1)) for _ in range(50)))
                with pytest.raises(StoreAway):
                    await store.ask(("PING",))
            assert [line["log_level"] for line in lines] == ["warning"]
        await until(lambda: store.is_there)
        assert await store.ask(("SET", "k", 1)) == [b"OK"]
    assert changes == [True, False, True]


async def test_a_connection_that_is_cut_is_made_anew(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    async with running(store):
        redis_server.do("CLIENT", "KILL", "TYPE", "normal")
        with contextlib.suppress(StoreAway):  # unless it is back already
            await store.ask(("PING",))
        await until(lambda: store.is_there)
        assert await store.ask(("PING",)) == [b"PONG"]


async def test_an_idle_router_hears_that_the_store_is_gone(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    async with running(store):
        redis_server.kill()
        await until(lambda: not store.is_there)


async def test_nobody_is_waited_for_who_takes_a_connection_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = new_store(f"redis://127.0.0.1:{silent.getsockname()[1]}", STRICT)
        looking = asyncio.create_task(store.run())
        try:
            with capture_logs() as lines:
                await until(lambda: bool(lines))
            with pytest.raises(StoreAway):
                store.ask(("PING",)).send(None)  # at its first step
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)


async def test_a_password_is_asked_for_and_never_told(redis_server: RedisServer) -> None:
    redis_server.do("CONFIG", "SET", "requirepass", "s3cret")
    right = f"redis://:s3cret@127.0.0.1:{redis_server.port}"
    wrong: SharedStore = new_store(right.replace("s3cret", "wr0ng"))
    with capture_logs() as lines:
        looking = asyncio.create_task(wrong.run())
        await until(lambda: bool(lines))
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        async with running(new_store(right)):
            pass
    assert "wr0ng" not in str(lines) and "s3cret" not in str(lines)
