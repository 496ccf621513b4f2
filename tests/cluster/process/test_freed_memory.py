"""What a crowd took of a process's memory is the machine's again once they are gone."""

from __future__ import annotations

import asyncio
import ctypes

import pytest

from cluster.process.background import cancel
from cluster.process.freed_memory import (
    MOST_LOOKS,
    SPARE_BYTES,
    FreedMemory,
    give_back,
    resident_bytes,
)

MEBIBYTE = 1 << 20


class Process:
    """One whose memory a test sets; freed is what lies over `in_use`."""

    def __init__(self) -> None:
        self.resident = self.in_use = 100 * MEBIBYTE
        self.num_given = 0
        self.due: asyncio.Event | None = None
        self.waits = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.due = asyncio.Event()
        self.waits.set()
        await self.due.wait()

    def give(self) -> None:
        self.num_given += 1
        self.resident = self.in_use

    async def look(self) -> None:
        """Returns when the next one is waited for."""
        await self.waits.wait()
        self.waits.clear()
        assert self.due is not None
        self.due.set()
        await self.waits.wait()


async def test_what_was_freed_is_given_back_once() -> None:
    process = Process()
    freed = FreedMemory(process.sleep, measure=lambda: process.resident, give=process.give)
    keeping = asyncio.ensure_future(freed.keep_low())
    await process.look()
    assert process.num_given == 0
    process.resident += SPARE_BYTES + 1
    await process.look()
    await process.look()
    assert process.num_given == 1
    process.in_use = process.resident = process.in_use + 2 * SPARE_BYTES  # it needs so much
    await process.look()
    await process.look()
    assert process.num_given == 2
    await cancel([keeping])


async def test_what_a_crowd_held_when_it_was_looked_at_is_given_back_once_it_is_gone() -> None:
    process = Process()
    lowest = process.in_use
    freed = FreedMemory(process.sleep, measure=lambda: process.resident, give=process.give)
    keeping = asyncio.ensure_future(freed.keep_low())
    await process.look()
    process.in_use = process.resident = lowest + 4 * SPARE_BYTES
    for _ in range(20):
        await process.look()
    assert 2 <= process.num_given <= 5  # tried again, later each time
    process.in_use = lowest
    for _ in range(MOST_LOOKS):
        await process.look()
    assert process.resident == lowest
    await cancel([keeping])


async def test_a_process_that_needs_more_for_good_is_hardly_ever_asked() -> None:
    process = Process()
    freed = FreedMemory(process.sleep, measure=lambda: process.resident, give=process.give)
    keeping = asyncio.ensure_future(freed.keep_low())
    await process.look()
    process.in_use = process.resident = process.in_use + 2 * SPARE_BYTES
    for _ in range(10 * MOST_LOOKS):
        await process.look()
    assert 10 <= process.num_given <= 20
    await cancel([keeping])


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="glibc only")
def test_pages_between_what_is_in_use_are_given_back() -> None:
    blocks = [b"x" * 100_000 for _ in range(2000)]
    last = blocks[-1]
    full = resident_bytes()
    del blocks
    give_back()
    assert resident_bytes() < full - 100 * MEBIBYTE
    assert len(last) == 100_000
