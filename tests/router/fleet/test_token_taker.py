"""Tokens are handed on past a task that waits for them, in their order, and none twice."""

from __future__ import annotations

import asyncio

import pytest

from protos import generation_pb2, worker_pb2
from router.fleet.request_stream import Ended, RequestStream, WorkerMessage
from router.fleet.token_taker import TakerFault
from router.fleet.unread import ChoiceTokens, UnreadBytes
from router.fleet.wakes import Wakes


class Taker:
    def __init__(self) -> None:
        self.taken: list[int] = []
        self.ready = True
        self.fails = False

    def is_ready(self) -> bool:
        return self.ready

    def take(self, tokens: ChoiceTokens) -> None:
        if self.fails:
            raise ValueError("cannot be told")
        self.taken += [one.token_id for one in tokens.tokens]


class Stream:
    """With a taker, whose first token is read and whose reader waits for the next message."""

    def __init__(self) -> None:
        self.taker, self.wakes, self.unread = Taker(), Wakes(), UnreadBytes()
        self.stream = RequestStream(
            max_tokens=100,
            on_finish=lambda choice: None,
            on_close=lambda: None,
            unread=self.unread,
            wakes=self.wakes,
        )
        self.stream.hand_to(self.taker)

    def come(self, *token_ids: int) -> None:
        """Each in a frame, but for the flush."""
        for token_id in token_ids:
            one = generation_pb2.GeneratedToken(token_id=token_id)
            self.stream.add_tokens(worker_pb2.Tokens(request_id="r", tokens=[one]))

    async def waiting(self) -> asyncio.Task[WorkerMessage]:
        self.come(0)
        assert await self.read() == [0]
        reading = asyncio.create_task(self.stream.next())
        await asyncio.sleep(0)
        return reading

    async def read(self) -> list[int]:
        return ids_of(await self.stream.next())


def ids_of(message: WorkerMessage) -> list[int]:
    assert isinstance(message, ChoiceTokens)
    return [one.token_id for one in message.tokens]


async def test_who_waits_sleeps_on_while_its_taker_takes_what_comes() -> None:
    here = Stream()
    reading = await here.waiting()
    for token_id in (1, 2):
        here.come(token_id)
        here.wakes.flush()
        await asyncio.sleep(0)
    assert (here.taker.taken, reading.done(), here.unread.num) == ([1, 2], False, 0)
    here.stream.end(worker_pb2.Ended(request_id="r"))
    assert isinstance(await reading, Ended)


async def test_a_taker_that_is_not_ready_takes_nothing_and_the_reader_gets_it() -> None:
    here = Stream()
    reading = await here.waiting()
    here.taker.ready = False
    here.come(1)
    here.wakes.flush()
    here.taker.ready = True
    here.come(2)  # behind what is not read yet
    here.wakes.flush()
    assert ids_of(await reading) == [1, 2]
    assert here.taker.taken == []


async def test_what_comes_before_anybody_waits_is_read_and_not_taken() -> None:
    here = Stream()
    here.come(0, 1)
    here.wakes.flush()
    assert await here.read() == [0, 1]
    assert here.taker.taken == []


async def test_a_reader_that_is_cancelled_gets_nothing_taken_behind_its_back() -> None:
    here = Stream()
    reading = await here.waiting()
    here.come(1)
    reading.cancel()
    here.wakes.flush()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert here.taker.taken == []


async def test_what_a_taker_raises_is_raised_where_its_reader_waits() -> None:
    here = Stream()
    reading = await here.waiting()
    here.taker.fails = True
    here.come(1)
    here.wakes.flush()
    with pytest.raises(TakerFault, match="cannot be told") as raised:
        await reading
    assert isinstance(raised.value.cause, ValueError)
