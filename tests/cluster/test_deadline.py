from __future__ import annotations

import asyncio
import math

import pytest

from cluster.deadline import Deadline


def test_what_remains_shrinks_with_the_clock_and_never_below_zero() -> None:
    now = [10.0]
    deadline = Deadline.after(2.0, lambda: now[0])
    now[0] = 11.5
    assert deadline.remaining_ms == 500.0 and not deadline.has_passed
    now[0] = 12.0
    assert deadline.has_passed
    now[0] = 99.0
    assert deadline.remaining_s == 0.0


def test_a_sooner_time_wins_and_a_later_one_does_not() -> None:
    deadline = Deadline.after(2.0, lambda: 10.0)
    assert deadline.sooner_of(1.0).at_s == 11.0
    assert deadline.sooner_of(5.0).at_s == 12.0


def test_no_number_is_no_deadline() -> None:
    with pytest.raises(ValueError, match="NaN"):
        Deadline.after(math.nan)


async def test_a_wait_is_bound_by_it() -> None:
    with pytest.raises(TimeoutError):
        async with Deadline.after(0.0).bound():
            await _for_ever()
    async with Deadline.never().bound():
        pass


async def _for_ever() -> None:
    await asyncio.Event().wait()
