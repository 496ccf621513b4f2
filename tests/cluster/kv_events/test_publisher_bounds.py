"""What others can make a worker hold by its ports of KV events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
import zmq
import zmq.asyncio

from cluster.cache_change import CacheChange, CachedBlock
from cluster.kv_events import publisher as module
from cluster.kv_events.publisher import (
    BLOCKS_PER_MESSAGE,
    LONGEST_MESSAGE_BYTES,
    MAX_UNSENT_BYTES,
    KvEventPublisher,
)
from cluster.kv_events.replay import ask
from cluster.kv_events.replay_buffer import ReplayBuffer
from cluster.kv_events.wire import encode_sequence
from cluster.process.loop_share import LoopShare

LIMIT_S = 60.0
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
"""Of ZMTP 3.0."""
LONG_FRAME = b"\x02"


@pytest.fixture
def context() -> Iterator[zmq.asyncio.Context]:
    made = zmq.asyncio.Context()
    yield made
    made.destroy(linger=0)


async def nothing() -> list[CachedBlock]:
    return []


def publisher() -> KvEventPublisher:
    return KvEventPublisher("127.0.0.1", 0, 0, nothing, buffer=ReplayBuffer(max_bytes=1 << 30))


def longest() -> CacheChange:
    """One message of as many blocks as it may have, each of the largest names and tokens."""
    blocks = [
        CachedBlock(b"%032d" % i, b"%032d" % (i - 1), list(range(100_000, 100_016)))
        for i in range(BLOCKS_PER_MESSAGE)
    ]
    return CacheChange(stored=blocks)


async def test_what_waits_for_a_subscriber_that_reads_nothing_has_a_bound_of_bytes() -> None:
    worker = publisher()
    await worker.start()
    worker.publish(longest())
    (_, payload) = worker._buffer.since(1)[0]
    assert len(payload) <= LONGEST_MESSAGE_BYTES
    assert worker._pub.get_hwm() * LONGEST_MESSAGE_BYTES <= MAX_UNSENT_BYTES
    assert worker._replay.get_hwm() * LONGEST_MESSAGE_BYTES <= MAX_UNSENT_BYTES
    await worker.stop()


@pytest.mark.parametrize("port", ["pub", "replay"])
async def test_who_sends_more_than_a_request_is_cut_off_before_it_is_read(
    port: str, context: zmq.asyncio.Context
) -> None:
    worker = publisher()
    pub, replay = await worker.start()
    kind, address = (b"SUB", pub) if port == "pub" else (b"DEALER", replay)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
    ready = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4) + kind
    writer.write(GREETING + b"\x04" + len(ready).to_bytes(1) + ready)
    writer.write(LONG_FRAME + (300_000_000).to_bytes(8))
    async with asyncio.timeout(LIMIT_S):
        await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    answer = await ask(context, replay, encode_sequence(0), LoopShare())
    assert [number for number, _ in answer] == [0]
    await worker.stop()


async def test_who_asks_and_does_not_read_is_given_up_and_others_are_answered_whole(
    monkeypatch: pytest.MonkeyPatch, context: zmq.asyncio.Context
) -> None:
    monkeypatch.setattr(module, "SEND_QUEUE_MESSAGES", 2)
    monkeypatch.setattr(module, "MAX_UNREAD_LOOKS", 50)
    worker = publisher()
    _, replay = await worker.start()
    for _ in range(100):
        worker.publish(longest())
    rogue = context.socket(zmq.DEALER)
    rogue.setsockopt(zmq.RCVHWM, 1)
    rogue.setsockopt(zmq.RCVBUF, 4096)
    rogue.connect(replay)
    await rogue.send_multipart((b"", encode_sequence(0)))
    await rogue.poll()
    async with asyncio.timeout(LIMIT_S):
        answer = await ask(context, replay, encode_sequence(0), LoopShare())
    assert [number for number, _ in answer] == list(range(101))
    rogue.close(linger=0)
    await worker.stop()
