"""An engine's publisher over real sockets, as cruel as the wire: it drops, repeats, reorders,
starts again from 0, forgets its past and says what is not true."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import zmq
import zmq.asyncio

from cluster.kv_events.wire import END, decode_sequence, encode_sequence
from router.engine_events.source import EngineEventSource
from tests.router.engine_events.engine import SIZE, payload

TOPIC = b"kv@model"


class RogueEngine:
    """`kept`: how many messages it keeps. `lost_in_replay`: numbers that are dropped on the way, by
    answer; later ones are whole."""

    def __init__(self, *, kept: int = 1000, frames: int = 4) -> None:
        self.past: list[tuple[int, bytes]] = []
        self.kept = kept
        self.frames = frames
        self.answers = True
        self.lost_in_replay: list[set[int]] = []
        self.asked: list[int] = []
        self._ts = 100.0
        self._context = zmq.asyncio.Context()
        self._pub, self.pub = self._bound(zmq.XPUB)
        self._router, self.replay = self._bound(zmq.ROUTER)

    def source(self, *, replay: bool = True) -> EngineEventSource:
        return EngineEventSource(
            pub=self.pub,
            replay=self.replay if replay else "",
            topic="kv@",
            block_size_tokens=SIZE,
        )

    async def subscribed(self) -> None:
        """Returns once a subscriber's wish has come: what is published from now on, it gets."""
        await self._pub.recv()

    async def publish(self, *events: Any, lost: bool = False) -> int:
        """The next message, which nobody gets where it is lost; returns its number."""
        number = self.past[-1][0] + 1 if self.past else 0
        self._ts += 1.0
        self.past = [*self.past, (number, payload(*events, ts=self._ts))][-self.kept :]
        if not lost:
            await self.say(*self.past[-1])
        return number

    async def say(self, number: int, packed: bytes) -> None:
        """Whatever it may be."""
        await self._pub.send_multipart((TOPIC, encode_sequence(number), packed))

    async def say_frames(self, *frames: bytes) -> None:
        await self._pub.send_multipart((TOPIC, *frames))

    def start_again(self) -> None:
        """Another process, behind the same connection."""
        self.past = []
        self._ts += 10.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        serving = asyncio.create_task(self._serve())
        try:
            yield
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            self._context.destroy(linger=0)

    async def before_reply(self, number: int) -> None:
        """What it does meanwhile."""

    async def _serve(self) -> None:
        while True:
            peer, _, start = await self._router.recv_multipart()
            self.asked.append(decode_sequence(start))
            if not self.answers:
                continue
            lost = self.lost_in_replay.pop(0) if self.lost_in_replay else set()
            for number, packed in self.past:
                if number >= self.asked[-1] and number not in lost:
                    await self.before_reply(number)
                    await self._reply(peer, TOPIC, encode_sequence(number), packed)
            await self._reply(peer, b"", END, b"")

    async def _reply(self, peer: bytes, topic: bytes, number: bytes, packed: bytes) -> None:
        body = (topic, number, packed)[4 - self.frames :]
        await self._router.send_multipart((peer, b"", *body))

    def _bound(self, kind: int) -> tuple[zmq.asyncio.Socket, str]:
        socket = self._context.socket(kind)
        socket.bind("tcp://127.0.0.1:0")
        return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)
