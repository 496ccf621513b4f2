"""A worker's side of KV events: publishes changes, answers replay and snapshot requests.

    publish(change) -> number it -> PUB, and into the buffer of the last `buffer_steps` messages
    a router asks -> ROUTER: buffered messages, or a snapshot of what is alive now

Message 0 says that the cache is empty: a new process has nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice

import zmq
import zmq.asyncio

from cluster.cache_change import CacheChange, CachedBlock
from cluster.errors import ConfigError, SplitserveError
from cluster.kv_events.wire import (
    END,
    AllBlocksCleared,
    Event,
    EventBatch,
    decode_sequence,
    encode_batch,
    encode_sequence,
    stored_events,
    to_events,
)
from cluster.logs import get_logger

BUFFER_STEPS = 10_000
SEND_QUEUE_MESSAGES = 100_000
"""Per subscriber, as in vLLM; what a slower one misses it asks for again."""
SNAPSHOT_BLOCKS_PER_MESSAGE = 1024
"""80 bytes a block: a message of some 100 KB, which does not hold up the loop."""
SNAPSHOT_TIMEOUT_S = 10.0

_log = get_logger("kv_events")


class KvEventPublisher:
    """One per worker process. Every call comes from the event loop's thread.

    `snapshot` returns the live cached blocks, parents first, as of some moment after its call.
    """

    def __init__(
        self,
        host: str,
        port: int,
        replay_port: int,
        snapshot: Callable[[], Awaitable[list[CachedBlock]]],
        *,
        buffer_steps: int = BUFFER_STEPS,
        topic: str = "",
    ) -> None:
        self._endpoints = (f"tcp://{host}:{port}", f"tcp://{host}:{replay_port}")
        self._snapshot = snapshot
        self._topic = topic.encode()
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer_steps)
        self._next_number = 0
        self._contexts = (zmq.Context(), zmq.asyncio.Context())
        self._pub = self._contexts[0].socket(zmq.PUB)
        self._replay = self._contexts[1].socket(zmq.ROUTER)
        self._server: asyncio.Task[None] | None = None

    async def start(self) -> tuple[str, str]:
        """Binds and returns (pub address, replay address). Raises ConfigError for a taken port."""
        for socket in (self._pub, self._replay):
            socket.set_hwm(SEND_QUEUE_MESSAGES)
            socket.setsockopt(zmq.LINGER, 0)
        pub = _bind(self._pub, self._endpoints[0])
        replay = _bind(self._replay, self._endpoints[1])
        self.publish(CacheChange(cleared=True))
        self._server = asyncio.create_task(self._serve(), name="kv-event-replay")
        return pub, replay

    def publish(self, change: CacheChange) -> None:
        """Numbers a change and sends it to whoever listens; never waits."""
        payload = _payload(to_events(change))
        number = self._next_number
        self._next_number += 1
        self._buffer.append((number, payload))
        self._pub.send_multipart((self._topic, encode_sequence(number), payload))

    async def stop(self) -> None:
        """Closes both sockets; idempotent."""
        if self._server is not None:
            self._server.cancel()
            await asyncio.gather(self._server, return_exceptions=True)
            self._server = None
        for context in self._contexts:
            context.destroy(linger=0)

    async def _serve(self) -> None:
        while True:
            frames = await self._replay.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != len(END):
                _log.warning("a replay request is malformed", num_frames=len(frames))
                continue
            peer, _, start = frames
            if start == END:
                await self._send_snapshot(peer)
            else:
                await self._send_buffered(peer, decode_sequence(start))
            await self._send(peer, b"", END, b"")

    async def _send_snapshot(self, peer: bytes) -> None:
        number = self._next_number - 1  # before asking: the snapshot surely contains it
        try:
            async with asyncio.timeout(SNAPSHOT_TIMEOUT_S):
                blocks = iter(await self._snapshot())
        except (TimeoutError, SplitserveError) as failure:
            _log.warning("no snapshot of the prefix cache to be had", error=repr(failure))
            return
        events: list[Event] = [AllBlocksCleared()]
        while chunk := list(islice(blocks, SNAPSHOT_BLOCKS_PER_MESSAGE)):
            events += stored_events(chunk)
            await self._send(peer, self._topic, encode_sequence(number), _payload(events))
            events = []
        if events:
            await self._send(peer, self._topic, encode_sequence(number), _payload(events))
        await self._send_buffered(peer, number + 1)

    async def _send_buffered(self, peer: bytes, start: int) -> None:
        for number, payload in list(self._buffer):
            if number >= start:
                await self._send(peer, self._topic, encode_sequence(number), payload)

    async def _send(self, peer: bytes, *frames: bytes) -> None:
        await self._replay.send_multipart((peer, b"", *frames))


def _payload(events: list[Event]) -> bytes:
    return encode_batch(EventBatch(time.time(), events, 0))


def _bind(socket: zmq.Socket[bytes] | zmq.asyncio.Socket, endpoint: str) -> str:
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as cause:
        raise ConfigError(f"KV events cannot listen on {endpoint} ({cause})") from cause
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
