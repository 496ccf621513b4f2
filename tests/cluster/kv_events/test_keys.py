"""A worker's KV events are for those whom it has told its keys; others hear and change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from cluster.cache_change import CacheChange, CachedBlock
from cluster.kv_events import replay as replay_module
from cluster.kv_events.keys import EventKeys, ReaderKeys
from cluster.kv_events.publisher import KvEventPublisher
from cluster.kv_events.replay import ask
from cluster.kv_events.subscriber import EventAddresses, KvEventSubscriber
from cluster.kv_events.wire import END
from cluster.process.background import cancel
from cluster.process.loop_share import LoopShare
from tests.cluster.kv_events.test_following import Listener, block, until

LIMIT_S = 60.0
REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
REFUSED |= zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_DISCONNECTED


@asynccontextmanager
async def worker(keys: EventKeys) -> AsyncIterator[tuple[str, str]]:
    """Its addresses; it has stored a block."""

    async def snapshot() -> list[CachedBlock]:
        return [block(1)]

    publisher = KvEventPublisher("127.0.0.1", 0, 0, snapshot, keys=keys)
    addresses = await publisher.start()
    publisher.publish(CacheChange(stored=[block(1)]))
    try:
        yield addresses
    finally:
        await publisher.stop()


@pytest.fixture
async def context() -> AsyncIterator[zmq.asyncio.Context]:
    made = zmq.asyncio.Context()
    yield made
    made.destroy(linger=0)


async def learns_everything(
    addresses: tuple[str, str], keys: ReaderKeys, context: zmq.asyncio.Context
) -> None:
    listener = Listener()
    follower = KvEventSubscriber(EventAddresses(*addresses, keys=keys), listener, retry_s=0.05)
    task = asyncio.create_task(follower.run(context))
    await until(lambda: len(listener.live) == 1, LIMIT_S)
    await cancel([task])


async def test_who_has_the_keys_follows(context: zmq.asyncio.Context) -> None:
    keys = EventKeys.new()
    async with worker(keys) as addresses:
        await learns_everything(addresses, keys.of_readers, context)


@pytest.mark.parametrize("which", ["pub", "replay"])
@pytest.mark.parametrize("shown", ["nothing", "the worker's key alone", "keys of another worker"])
async def test_strangers_are_refused_and_disturb_nobody(
    which: str, shown: str, context: zmq.asyncio.Context
) -> None:
    keys, others = EventKeys.new(), EventKeys.new().of_readers
    async with worker(keys) as addresses:
        kind, address = (zmq.SUB, addresses[0]) if which == "pub" else (zmq.DEALER, addresses[1])
        stranger: Any = context.socket(kind)
        if shown == "the worker's key alone":
            ReaderKeys(keys.of_readers.worker, others.secret).put_on(stranger)
        elif shown == "keys of another worker":
            others.put_on(stranger)
        refusals = stranger.get_monitor_socket(REFUSED)
        if which == "pub":
            stranger.subscribe(b"")
        stranger.connect(address)
        if which == "replay":
            with suppress(zmq.Again):  # he is refused already
                await stranger.send_multipart((b"", END), zmq.NOBLOCK)
        async with asyncio.timeout(LIMIT_S):
            assert parse_monitor_message(await refusals.recv_multipart())["event"] & REFUSED
        await learns_everything(addresses, keys.of_readers, context)
        assert await stranger.poll(0) == 0
        stranger.disable_monitor()
        refusals.close(linger=0)
        stranger.close(linger=0)


async def test_bytes_that_are_none_of_zmq_disturb_nobody(context: zmq.asyncio.Context) -> None:
    keys = EventKeys.new()
    async with worker(keys) as addresses:
        for address in addresses:
            port = int(address.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 100)
            with suppress(ConnectionError):
                async with asyncio.timeout(LIMIT_S):
                    await reader.read()
            writer.close()
        await learns_everything(addresses, keys.of_readers, context)


def test_secrets_are_not_shown() -> None:
    keys = EventKeys.new()
    assert keys.of_readers.secret not in repr(keys)
    assert keys.own_secret.decode() not in repr(keys)


async def test_who_asks_with_keys_of_another_worker_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch, context: zmq.asyncio.Context
) -> None:
    monkeypatch.setattr(replay_module, "ANSWER_TIMEOUT_S", 0.2)
    async with worker(EventKeys.new()) as (_, replay):
        for keys in (None, EventKeys.new().of_readers):
            with pytest.raises(TimeoutError):
                await ask(context, replay, END, LoopShare(), keys)
