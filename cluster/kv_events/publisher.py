"""A worker's side of KV events: publishes changes, answers replay and snapshot requests.

    publish(change) -> number it -> PUB, and into the replay buffer
    a router asks -> ROUTER: buffered messages, or a snapshot of what is alive now

Message 0 says that the cache is empty: a new process has nothing. No message has more than
BLOCKS_PER_MESSAGE stored blocks: a long prompt's come in several, one right after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import zmq
import zmq.asyncio

from cluster.cache_change import CacheChange, CachedBlock
from cluster.deadline import Sleep
from cluster.errors import ConfigError, SplitserveError
from cluster.kv_events.keys import HANDSHAKE_BYTES, EventGate, EventKeys
from cluster.kv_events.replay_buffer import ReplayBuffer
from cluster.kv_events.wire import (
    END,
    NO_NAMES,
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
from cluster.process.background import Background, Loss
from cluster.process.loop_share import LoopShare

BLOCKS_PER_MESSAGE = 1024
LONGEST_MESSAGE_BYTES = 128 * 1024
"""Of a prompt's blocks of 16 tokens, some 115 bytes each; it takes a reader 1 ms. Of blocks of 128
tokens it is six times as much."""
MAX_UNSENT_BYTES = 64 * 1024 * 1024
SEND_QUEUE_MESSAGES = MAX_UNSENT_BYTES // LONGEST_MESSAGE_BYTES
"""For each subscriber that reads nothing: what it misses it asks for again. vLLM keeps 100,000:
twelve gigabytes of the longest."""
MAX_REQUEST_BYTES = 512
"""Of what others send: eight bytes, their names, and the words with which ZMQ begins."""
SNAPSHOT_TIMEOUT_S = 10.0
UNREAD_LOOK_S = 0.01
MAX_UNREAD_LOOKS = 200
"""At who asked and does not read; meanwhile nobody else is answered."""

_log = get_logger("kv_events")


class KvEventPublisher:
    """One per worker process. Every call comes from the event loop's thread.

    `snapshot` returns the live cached blocks, parents first, as of some moment after its call;
    `names` says what clients call each adapter, by its digest, and is asked for what one computed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        replay_port: int,
        snapshot: Callable[[], Awaitable[list[CachedBlock]]],
        *,
        buffer: ReplayBuffer | None = None,
        keys: EventKeys | None = None,
        topic: str = "",
        sleep: Sleep = asyncio.sleep,
        names: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`start` listens on `host`. Without `keys` it tells everybody."""
        self._endpoints = (f"tcp://{host}:{port}", f"tcp://{host}:{replay_port}")
        self._host = host
        self._snapshot = snapshot
        self._topic, self._names = topic.encode(), names
        self._buffer = buffer or ReplayBuffer()
        self._sleep = sleep
        self._share = LoopShare()
        self._next_number = 0
        self._keys = keys
        self._gate: EventGate | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._replay = zmq.asyncio.Context(self._context).socket(zmq.ROUTER)
        self._background = Background(_never_needed)

    async def start(self, advertised: str | None = None) -> tuple[str, str]:
        """Binds and returns (pub address, replay address) as others reach them: at `advertised`,
        where that is another host than the one that is listened on.

        Raises ConfigError for a taken port.
        """
        if self._keys is not None:
            self._gate = EventGate(self._context, self._keys)
        for socket in (self._pub, self._replay):
            socket.set_hwm(SEND_QUEUE_MESSAGES)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_BYTES)
            if self._gate is not None:
                socket.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_BYTES + HANDSHAKE_BYTES)
                self._gate.guard(socket)
        self._replay.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a part of an answer is never dropped
        pub = self._bind(self._pub, self._endpoints[0])
        replay = self._bind(self._replay, self._endpoints[1])
        self.publish(CacheChange(cleared=True))
        self._background.keep("kv-event-replay", self._serve)
        host = advertised or self._host
        return f"tcp://{host}:{pub}", f"tcp://{host}:{replay}"

    def publish(self, change: CacheChange) -> None:
        """Numbers a change and sends it to whoever listens; never waits."""
        *firsts, last = _chunks(change.stored) or [[]]
        cleared = change.cleared
        for chunk in firsts:
            self._publish(CacheChange(stored=chunk, cleared=cleared))
            cleared = False
        self._publish(CacheChange(stored=last, removed=change.removed, cleared=cleared))

    def _publish(self, change: CacheChange) -> None:
        payload = _payload(to_events(change, self._names_for(change.stored)))
        number = self._next_number
        self._next_number += 1
        self._buffer.add(number, payload)
        self._pub.send_multipart((self._topic, encode_sequence(number), payload))

    def _names_for(self, blocks: list[CachedBlock]) -> Mapping[str, str]:
        return self._names() if any(block.adapter for block in blocks) else NO_NAMES

    async def stop(self) -> None:
        """Closes both sockets; idempotent."""
        await self._background.close()
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        self._replay.close(linger=0)
        self._context.destroy(linger=0)

    def _bind(self, socket: zmq.Socket[bytes] | zmq.asyncio.Socket, endpoint: str) -> str:
        """The port that was taken."""
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as cause:
            raise ConfigError(f"KV events cannot listen on {endpoint} ({cause})") from cause
        return socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2]

    async def _serve(self) -> None:
        while True:
            frames = await self._replay.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != len(END):
                _log.warning(
                    "a request for past KV events is malformed; it is ignored",
                    num_frames=len(frames),
                )
                continue
            peer, _, start = frames
            try:
                await self._answer(peer, start)
            except zmq.ZMQError as failure:  # it has left, or does not read
                _log.warning(
                    "whoever asked for past KV events did not read them to their end",
                    error=str(failure),
                )

    async def _answer(self, peer: bytes, start: bytes) -> None:
        if start == END:
            await self._send_snapshot(peer)
        else:
            await self._send_buffered(peer, decode_sequence(start))
        await self._send(peer, b"", END, b"")

    async def _send_snapshot(self, peer: bytes) -> None:
        number = self._next_number - 1  # before asking: the snapshot surely contains it
        try:
            async with asyncio.timeout(SNAPSHOT_TIMEOUT_S):
                blocks = await self._snapshot()
        except (TimeoutError, SplitserveError) as failure:
            _log.warning(
                "the engine did not list its cached blocks; whoever asked will ask again",
                error=repr(failure),
            )
            return
        events: list[Event] = [AllBlocksCleared()]
        for chunk in _chunks(blocks) or [[]]:
            await self._share.breathe()
            events += stored_events(chunk, self._names_for(chunk))
            await self._send(peer, self._topic, encode_sequence(number), _payload(events))
            events = []
        await self._send_buffered(peer, number + 1)

    async def _send_buffered(self, peer: bytes, start: int) -> None:
        for number, payload in self._buffer.since(start):
            await self._share.breathe()
            await self._send(peer, self._topic, encode_sequence(number), payload)

    async def _send(self, peer: bytes, *frames: bytes) -> None:
        """Waits while too much is unread there. Raises ZMQError when that lasts, or it has left."""
        message = (peer, b"", *frames)
        for _ in range(MAX_UNREAD_LOOKS):
            try:
                await self._replay.send_multipart(message, zmq.NOBLOCK)
                return
            except zmq.Again:  # nothing says when one reader of a ROUTER has read
                await self._sleep(UNREAD_LOOK_S)
        await self._replay.send_multipart(message, zmq.NOBLOCK)


def _never_needed(loss: Loss) -> None:
    """What is kept is started again; nothing here is lost."""


def _chunks(blocks: list[CachedBlock]) -> list[list[CachedBlock]]:
    """In order, each small enough for a message."""
    starts = range(0, len(blocks), BLOCKS_PER_MESSAGE)
    return [blocks[start : start + BLOCKS_PER_MESSAGE] for start in starts]


def _payload(events: list[Event]) -> bytes:
    return encode_batch(EventBatch(time.time(), events, 0))
