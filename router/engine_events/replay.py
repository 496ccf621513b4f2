"""Asking an engine for the messages of its past, one after the other.

It sends all that it has at once, and drops without a word what finds no place on the way. So each
answer is read as far as nothing is missing, and the rest is asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import zmq
import zmq.asyncio

from cluster.kv_events.wire import END, decode_sequence, encode_sequence
from router.engine_events.wire import MAX_PAYLOAD_BYTES

ANSWER_TIMEOUT_S = 5.0
"""For the next message: an engine looks for questions between two batches of its own."""
MAX_UNREAD_MESSAGES = 256
"""Of MAX_PAYLOAD_BYTES at most, 30 kB mostly; what more there is waits at the engine."""
MAX_ANSWER_MESSAGES = 100_000
"""Ten times what vLLM keeps."""

Hear = Callable[[int, bytes], Awaitable[None]]
"""(number, payload): the next message."""


class EnginePast:
    """`address`: a replay socket, as in EngineEventSource."""

    def __init__(self, context: zmq.asyncio.Context, address: str) -> None:
        self._context = context
        self._address = address

    async def tell(self, first: int | None, hear: Hear) -> None:
        """Messages without a gap to the last one, from `first` on; None: from the oldest that is
        kept. Nothing where `first` is not kept any more.

        Raises TimeoutError when nobody answers and ValueError for an answer that is none; what was
        told until then holds.
        """
        reading = _Reading(first, hear)
        while not reading.is_whole:
            begun = reading.wanted
            await self._ask(reading)
            if reading.wanted == begun:
                return

    async def _ask(self, reading: _Reading) -> None:
        socket: zmq.asyncio.Socket = self._context.socket(zmq.DEALER)
        try:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, MAX_UNREAD_MESSAGES)
            socket.setsockopt(zmq.MAXMSGSIZE, MAX_PAYLOAD_BYTES)
            socket.connect(self._address)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await socket.send_multipart((b"", encode_sequence(reading.wanted or 0)))
            for _ in range(MAX_ANSWER_MESSAGES):
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    frames = await socket.recv_multipart()
                if not await reading.take(frames):
                    return
        finally:
            socket.close(linger=0)


class _Reading:
    """What has been read of a past, over several answers."""

    def __init__(self, first: int | None, hear: Hear) -> None:
        self._hear = hear
        self.wanted = first
        """Number of the next message; None: whichever comes."""
        self.is_whole = False

    async def take(self, frames: list[bytes]) -> bool:
        """False when this answer has no more that is of use. Raises ValueError."""
        if len(frames) not in (3, 4):  # before 0.32 without the topic
            raise ValueError(f"a replay answer has {len(frames)} frames, neither 3 nor 4")
        number, payload = frames[-2:]
        if number == END:
            self.is_whole = True
            return False
        if self.wanted not in (None, decode_sequence(number)):
            return False
        self.wanted = decode_sequence(number) + 1
        await self._hear(self.wanted - 1, payload)
        return True
