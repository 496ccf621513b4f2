"""A client that does not read is given up, by one timer for its answer or for a write."""

from __future__ import annotations

import asyncio

import pytest

from cluster.errors import Cancelled
from router.front.reader_patience import ReaderPatience, within_reader_timeout


async def soon() -> None:
    await asyncio.sleep(0)


class Handle:
    """Of a timer that is only counted."""

    def __init__(self, armed: list[float], delay_s: float) -> None:
        armed.append(delay_s)

    def cancel(self) -> None:
        """It never fires."""


async def test_many_writes_that_are_read_arm_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    armed: list[float] = []
    monkeypatch.setattr(loop, "call_later", lambda delay_s, *_: Handle(armed, delay_s))
    async with ReaderPatience(30.0, loop.time) as patience:
        for _ in range(1000):
            await patience.write(soon())
    assert armed == [30.0]


async def test_a_write_that_is_not_read_is_given_up_and_the_task_goes_on() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(Cancelled, match="did not read its answer for 0.01 s"):
        async with ReaderPatience(0.01, loop.time) as patience:
            await patience.write(soon())
            await patience.write(forever())
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    await soon()


async def forever() -> None:
    await asyncio.Event().wait()


async def test_patience_counts_from_the_write_and_not_from_the_answer() -> None:
    loop = asyncio.get_running_loop()
    async with ReaderPatience(0.01, loop.time) as patience:
        silence = asyncio.Event()
        loop.call_later(0.05, silence.set)
        await silence.wait()  # nothing is written meanwhile: nobody is late
        await patience.write(soon())


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def answers() -> None:
        async with ReaderPatience(30.0, asyncio.get_running_loop().time) as patience:
            await patience.write(forever())

    answering = asyncio.ensure_future(answers())
    await soon()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering


async def test_who_reads_in_time_gets_what_is_written_and_who_does_not_is_given_up() -> None:
    taken: list[str] = []

    async def write() -> None:
        taken.append("token")

    await within_reader_timeout(write(), 30.0)
    assert taken == ["token"]
    with pytest.raises(Cancelled, match="did not read its answer for 0.01 s"):
        await within_reader_timeout(asyncio.Event().wait(), 0.01)
