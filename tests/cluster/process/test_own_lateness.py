"""Our own lateness, as everybody counts it."""

from __future__ import annotations

import ast
import asyncio
import threading
import time

import pytest

from cluster.process.own_lateness import LATE_S, LONGEST_LOOK_S, LateTurn, SeenTime, SeenTimeout
from tests.manual_clock import ManualClock
from tests.packaging.test_import_cycles import FILES


def test_a_gap_between_two_looks_counts_as_a_short_one() -> None:
    clock = ManualClock()
    time = SeenTime(clock)
    clock.advance(0.25)
    assert time.look() == 0.25
    clock.advance(1e6)  # we were stopped
    assert time.look() == 0.25 + LONGEST_LOOK_S
    clock.advance(0.5)
    time.renew()
    clock.advance(0.125)
    assert time.look() == 0.125


def test_a_late_turn_spares_everybody_once_and_a_loop_that_is_always_late_judges_too() -> None:
    clock = ManualClock()
    turn = LateTurn(clock)

    def spares(late_s: float) -> bool:
        turn.due_in(0.5)
        clock.advance(0.5 + late_s)
        assert abs(turn.late_s - late_s) < 1e-9
        return turn.spares()

    late = 10 * LATE_S
    assert [spares(late_s) for late_s in (0.0, late, late, late, 0.0, late)] == [
        *(False, True, False, True, False, True)
    ]
    turn.needs_none()
    assert spares(late)


async def comes_while_the_loop_stands(stall_s: float) -> str:
    """An answer, which passes through another task; it has come long before the loop goes on."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    async def pass_on() -> str:
        return await answer

    def stand() -> None:
        teller = threading.Thread(
            target=loop.call_soon_threadsafe, args=(answer.set_result, "here")
        )
        teller.start()
        time.sleep(stall_s)
        teller.join()

    loop.call_later(0.01, stand)
    return await asyncio.create_task(pass_on())


async def test_an_answer_that_came_while_our_loop_stood_is_read_before_the_verdict() -> None:
    async with SeenTimeout(0.2, time.monotonic):
        assert await comes_while_the_loop_stands(1.0) == "here"


async def test_a_loop_that_stands_in_the_last_look_still_reads_first() -> None:
    async with SeenTimeout(0.2, time.monotonic):
        await asyncio.sleep(0.15)
        assert await comes_while_the_loop_stands(1.0) == "here"


async def test_who_does_not_answer_a_loop_that_turns_is_given_up() -> None:
    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        async with SeenTimeout(0.2, time.monotonic):
            await asyncio.Event().wait()
    assert time.monotonic() - began_s >= 0.2


async def test_a_cancellation_passes_through_and_what_ends_in_time_is_left_alone() -> None:
    async with SeenTimeout(0.01, time.monotonic):
        pass

    async def waits() -> None:
        async with SeenTimeout(60.0, time.monotonic):
            await asyncio.Event().wait()

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_lateness_is_stated_in_one_place() -> None:
    stated = [
        module
        for module, path in FILES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("LATE_S", "_LATE_S")
    ]
    assert stated == ["cluster.process.own_lateness"]
