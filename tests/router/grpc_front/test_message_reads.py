"""A message is read to its end, whoever waits for it; and large ones come in one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from cluster.process.background import Background, cancel, nothing_needed
from cluster.process.loop_share import BUDGET_S, LoopShare
from router.grpc_front.message_reads import MessageReads
from tests.manual_clock import ManualClock


class FakeCall:
    """A context whose read, as gRPC's own, frees what it has only where it goes on."""

    def __init__(self, on_copy: Callable[[], None] = lambda: None) -> None:
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_freed = False
        self._on_copy = on_copy

    async def read(self) -> bytes:
        await self.arrived
        self.is_freed = True
        self._on_copy()
        return b"message"


@pytest.fixture
async def background() -> AsyncIterator[Background]:
    owner = Background(nothing_needed)
    yield owner
    await owner.close()


@pytest.fixture
async def complaints() -> list[dict[str, Any]]:
    """What the loop has to say of failures that nobody took."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, what: heard.append(what))
    return heard


async def turns(num: int = 10) -> None:
    for _ in range(num):
        await asyncio.sleep(0)


async def test_a_message_that_comes_is_handed_out(background: Background) -> None:
    reads, call = MessageReads(background, LoopShare()), FakeCall()
    reading = asyncio.ensure_future(reads.message(call))
    await turns()
    call.arrived.set_result(None)
    assert await reading == b"message"


async def test_a_read_that_nobody_waits_for_any_more_goes_on_to_its_end(
    background: Background,
) -> None:
    reads, call = MessageReads(background, LoopShare()), FakeCall()
    reading = asyncio.ensure_future(reads.message(call))
    await turns()
    await cancel([reading])
    assert not call.arrived.cancelled()
    call.arrived.set_result(None)
    await turns()
    assert call.is_freed


async def test_a_message_whose_caller_leaves_as_it_waits_for_its_turn_is_freed(
    background: Background,
) -> None:
    clock = ManualClock()
    share = LoopShare(clock=clock)
    reads, calls = MessageReads(background, share), [FakeCall() for _ in range(4)]
    reading = [asyncio.ensure_future(reads.message(call)) for call in calls]
    await turns()
    for call in calls:
        call.arrived.set_result(None)
    await asyncio.sleep(0)
    await cancel(reading)
    await turns()
    assert all(call.is_freed for call in calls)


async def test_how_a_read_ends_that_nobody_waits_for_is_nobody_s_business(
    background: Background, complaints: list[dict[str, Any]]
) -> None:
    reads, call = MessageReads(background, LoopShare()), FakeCall()
    reading = asyncio.ensure_future(reads.message(call))
    await turns()
    await cancel([reading])
    call.arrived.set_exception(RuntimeError("Locally aborted."))
    await turns()
    del call, reading
    assert complaints == []


async def test_a_read_that_fails_fails_where_it_is_waited_for(background: Background) -> None:
    reads, call = MessageReads(background, LoopShare()), FakeCall()
    reading = asyncio.ensure_future(reads.message(call))
    await turns()
    call.arrived.set_exception(RuntimeError("the call has ended"))
    with pytest.raises(RuntimeError, match="has ended"):
        await reading


async def test_of_large_messages_that_are_there_together_each_has_a_turn_of_its_own(
    background: Background,
) -> None:
    clock, copied = ManualClock(), 0

    def copies() -> None:
        nonlocal copied
        copied += 1
        clock.advance(2 * BUDGET_S)

    reads = MessageReads(background, LoopShare(clock=clock))
    calls = [FakeCall(copies) for _ in range(16)]
    reading = asyncio.gather(*map(reads.message, calls))
    await turns()
    for call in calls:
        call.arrived.set_result(None)
    while not reading.done():
        before = copied
        await asyncio.sleep(0)
        assert copied - before <= 1
    assert await reading == [b"message"] * 16
