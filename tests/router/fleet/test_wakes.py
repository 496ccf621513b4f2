"""Readers are woken together: at once where there is time, else several steps' tokens later."""

from __future__ import annotations

import asyncio

from protos import generation_pb2, worker_pb2
from router.fleet.request_stream import MAX_JOINED_TOKENS, RequestStream
from router.fleet.unread import ChoiceTokens
from router.fleet.wakes import MAX_REST_S, SLICE_READERS, Wakes


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def stream_of(wakes: Wakes | None) -> RequestStream:
    return RequestStream(
        max_tokens=10_000, on_finish=lambda choice: None, on_close=lambda: None, wakes=wakes
    )


def token(token_id: int, choice: int = 0) -> worker_pb2.Tokens:
    one = generation_pb2.GeneratedToken(token_id=token_id)
    return worker_pb2.Tokens(request_id="r", choice=choice, tokens=[one])


async def read(stream: RequestStream) -> list[int]:
    message = await stream.next()
    assert isinstance(message, ChoiceTokens)
    return [one.token_id for one in message.tokens]


async def test_a_reader_that_waits_is_woken_by_the_flush_of_a_loop_that_has_time() -> None:
    wakes = Wakes(Clock())
    stream = stream_of(wakes)
    stream.add_tokens(token(1))
    assert await read(stream) == [1]
    reading = asyncio.create_task(read(stream))
    await asyncio.sleep(0)
    stream.add_tokens(token(2))
    await asyncio.sleep(0)
    assert not reading.done()
    wakes.flush()
    assert await reading == [2]


async def test_after_much_work_the_tokens_of_several_frames_come_in_one_piece() -> None:
    clock = Clock()
    wakes = Wakes(clock)
    stream = stream_of(wakes)
    stream.add_tokens(token(1))
    assert await read(stream) == [1]
    await work_for(MAX_REST_S, wakes, clock)
    reading = asyncio.create_task(read(stream))
    await asyncio.sleep(0)
    for token_id in (2, 3, 4):
        stream.add_tokens(token(token_id))
        wakes.flush()
    assert await reading == [2, 3, 4]


class Work:
    """Of readers that get their tokens."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock

    def hand_on(self) -> None:
        self._clock.now_s += self._seconds


async def work_for(seconds: float, wakes: Wakes, clock: Clock) -> None:
    """Of one flush."""
    wakes.add(Work(seconds, clock))
    wakes.flush()
    await asyncio.sleep(0)


async def test_many_readers_get_their_tokens_a_slice_in_each_turn_of_the_loop() -> None:
    clock, num_readers = Clock(), 2 * SLICE_READERS + 1
    wakes = Wakes(clock)
    for _ in range(num_readers):
        wakes.add(Work(1.0, clock))
    wakes.flush()
    served = [clock.now_s - 100.0]
    for _ in range(2):
        wakes.flush()  # of the next frame
        await asyncio.sleep(0)
        served.append(clock.now_s - 100.0)
    assert served == [SLICE_READERS, 2 * SLICE_READERS, num_readers]


async def test_who_comes_while_others_get_theirs_is_not_forgotten() -> None:
    clock = Clock()
    wakes = Wakes(clock)
    for _ in range(SLICE_READERS + 1):
        wakes.add(Work(0.0, clock))
    wakes.flush()
    late = Work(1.0, clock)
    wakes.add(late)
    wakes.flush()
    async with asyncio.timeout(30):
        while clock.now_s == 100.0:
            await asyncio.sleep(0)


async def test_the_first_tokens_and_the_end_are_waited_for_by_nobody() -> None:
    clock = Clock()
    wakes = Wakes(clock)
    await work_for(MAX_REST_S, wakes, clock)
    stream = stream_of(wakes)
    reading = asyncio.create_task(read(stream))
    await asyncio.sleep(0)
    stream.add_tokens(token(1))
    assert await reading == [1]
    ending = asyncio.create_task(stream.next())
    await asyncio.sleep(0)
    stream.end(worker_pb2.Ended(request_id="r"))
    await ending


async def test_tokens_of_two_choices_are_never_joined_and_no_piece_is_too_long() -> None:
    stream = stream_of(None)
    for place in range(MAX_JOINED_TOKENS + 1):
        stream.add_tokens(token(place))
    stream.add_tokens(token(7, choice=1))
    assert await read(stream) == list(range(MAX_JOINED_TOKENS))
    assert await read(stream) == [MAX_JOINED_TOKENS]
    assert await read(stream) == [7]
