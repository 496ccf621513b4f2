"""Bytes of many connections: how many of them are worked on in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvloop

from cluster.process.background import Background, cancel, nothing_needed
from cluster.process.loop_share import LoopShare
from router.api.http.asgi import Receive, Scope, Send
from router.api.http.connection import READ_BYTES
from router.api.http.read_turns import ReadTurns
from router.api.http.server import HttpServer
from tests.router.api.http.wire import Wire
from tests.router.front_fakes import running_front, small_limits

HEAD = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n"
SLICE_S, BUDGET_S = 0.001, 0.002


class Door:
    """Turns on a clock of the test's own: each slice takes SLICE_S."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.turns = ReadTurns(LoopShare(BUDGET_S, clock=lambda: self.now_s))
        self.turn = 0
        self.worked = Counter[int]()
        self.order: list[str] = []

    def work(self, name: str) -> None:
        self.now_s += SLICE_S
        self.worked[self.turn] += 1
        self.order.append(name)

    async def count(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


class Slices:
    """A reader with so many reads to come."""

    def __init__(self, door: Door, address: str, count: int) -> None:
        self._door, self._address, self._left = door, address, count

    def comes(self) -> None:
        """As the loop hands out a read of it."""
        if self._door.turns.has_turn():
            self.read_on()
        else:
            self._door.turns.wait(self._address, self)

    def read_on(self) -> None:
        self._left -= 1
        self._door.work(self._address)
        if self._left:
            self._door.turns.wait(self._address, self)


@asynccontextmanager
async def running(door: Door) -> AsyncIterator[None]:
    background = Background(nothing_needed)
    background.keep("turns", door.turns.run)
    counting = asyncio.ensure_future(door.count())
    try:
        yield
    finally:
        await cancel([counting])
        await background.close()


async def drained(door: Door, count: int) -> None:
    for _ in range(100 * count):
        if len(door.order) == count:
            return
        await asyncio.sleep(0)
    raise AssertionError("some have had no turn")


@pytest.mark.parametrize("num_connections", [2, 64, 256])
async def test_however_many_have_bytes_a_turn_of_the_loop_is_no_longer(
    num_connections: int,
) -> None:
    door = Door()
    async with running(door):
        await asyncio.sleep(0)
        for _ in range(num_connections):
            Slices(door, "10.0.0.7", 3).comes()
        await drained(door, 3 * num_connections)
    assert max(door.worked.values()) <= 2 * BUDGET_S / SLICE_S


async def test_an_address_with_many_connections_has_no_more_turns_than_one_with_one() -> None:
    door = Door()
    async with running(door):
        await asyncio.sleep(0)
        for _ in range(100):
            Slices(door, "crowd", 1).comes()
        Slices(door, "alone", 3).comes()
        await drained(door, 103)
    last = max(place for place, name in enumerate(door.order) if name == "alone")
    assert last <= 10


async def test_who_has_left_the_line_has_no_turn() -> None:
    door = Door()
    door.now_s = 1.0
    first, second = Slices(door, "a", 1), Slices(door, "a", 1)
    door.turns.wait("a", first)
    door.turns.wait("a", second)
    door.turns.leave("a", first)
    door.turns.leave("a", first)
    door.turns.leave("b", first)
    async with running(door):
        await drained(door, 1)
        await asyncio.sleep(0)
    assert door.order == ["a"]


async def spent(door: Door) -> None:
    """This turn of the loop has no time left."""
    assert door.turns.has_turn()
    door.now_s += BUDGET_S


async def test_a_read_without_a_turn_is_kept_and_its_connection_is_read_no_further() -> None:
    door = Door()
    wire = Wire(turns=door.turns)
    async with running(door):
        wire.read(HEAD + b"x" * 1000)
        await spent(door)
        wire.read(b"y" * READ_BYTES)
        assert wire.transport.is_paused
        assert len(wire.protocol.cycle.body) == 1000
        await wire.turns()
        assert not wire.transport.is_paused
        wire.may_answer.set()
        wire.read(b"z" * (99_000 - READ_BYTES))
        await wire.settle()
    body = b"x" * 1000 + b"y" * READ_BYTES + b"z" * (99_000 - READ_BYTES)
    assert wire.answers == [b"/a " + body]


async def test_a_connection_lost_while_its_read_waits_leaves_nothing() -> None:
    door = Door()
    wire = Wire(turns=door.turns)
    async with running(door):
        wire.read(HEAD)
        await spent(door)
        wire.read(b"y")
        wire.lose()
        await wire.settle()
    assert door.turns._line == {}
    assert wire.left == ["/a"]


async def test_a_body_that_nobody_asks_for_stays_paused_after_its_turn() -> None:
    door = Door()
    wire = Wire(turns=door.turns)
    wire.read(HEAD)
    await spent(door)
    wire.read(b"y" * READ_BYTES)
    wire.connection.read_on()  # type: ignore[union-attr]
    assert not wire.transport.is_paused
    wire.read(b"y" * 1000)
    wire.connection.read_on()  # type: ignore[union-attr]
    assert wire.transport.is_paused
    wire.lose()
    await wire.settle()


def test_bodies_in_chunks_come_whole_through_the_loop_that_the_router_runs_on() -> None:
    """uvloop's transports are others than asyncio's."""
    pieces = [b"%d " % i * 3000 for i in range(100)]

    async def given() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def tell_size(scope: Scope, receive: Receive, send: Send) -> None:
        num_bytes, more = 0, True
        while more:
            message = await receive()
            num_bytes += len(message["body"])
            more = message["more_body"]
        text = b"%d" % num_bytes
        length = (b"content-length", b"%d" % len(text))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": text})

    async def run() -> list[str]:
        server = HttpServer(tell_size, "127.0.0.1", 0, small_limits(), on_loss=print)
        await server.start()
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
                asked = (client.post("/", content=given()) for _ in range(5))
                return [answer.text for answer in await asyncio.gather(*asked)]
        finally:
            await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run()) == [str(sum(map(len, pieces)))] * 5


async def test_the_reads_of_a_door_have_the_share_that_its_readers_have() -> None:
    async with running_front() as front:
        assert front.server._turns._share is front.share
