"""Who is next at a text worker: by size and age, not by who came in a crowd."""

from __future__ import annotations

import asyncio

import pytest

from cluster.errors import QueueFull
from router.text_worker import waiting
from router.text_worker.waiting import AGEING_BYTES_PER_S, Job, WaitingTasks

LONG, SHORT = 32 * 1024, 200


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tasks(clock: Clock) -> WaitingTasks:
    return WaitingTasks(clock=clock)


def job(size_bytes: int, body: bytes = b"") -> Job:
    return Job(b"", body, size_bytes, asyncio.get_running_loop().create_future())


async def test_a_short_chat_goes_before_every_long_one_of_the_last_half_minute(
    tasks: WaitingTasks, clock: Clock
) -> None:
    """255 long ones of 110 ms each: 28 s of work."""
    for _ in range(255):
        tasks.add(job(LONG))
    for clock.now_s in (0.0, 5.0, 28.0):
        short = job(SHORT)
        tasks.add(short)
        assert tasks.first() is short


async def test_a_long_task_waits_for_nothing_that_came_after_it_was_due(
    tasks: WaitingTasks, clock: Clock
) -> None:
    long = job(LONG)
    tasks.add(long)
    tasks.add(job(SHORT))
    served: list[Job | None] = []
    while not served or served[-1] is not long:
        tasks.add(job(SHORT))
        served.append(tasks.first())
        clock.now_s += 0.1
    assert abs(clock.now_s - LONG / AGEING_BYTES_PER_S) < 1.0


async def test_equals_are_served_in_the_order_in_which_they_came(tasks: WaitingTasks) -> None:
    jobs = [job(SHORT) for _ in range(20)]
    for each in jobs:
        tasks.add(each)
    assert [tasks.first() for _ in jobs] == jobs
    assert tasks.first() is None


async def test_when_too_much_waits_the_one_due_last_is_refused_and_not_the_short_newcomer(
    tasks: WaitingTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING", 3)
    long = [job(LONG) for _ in range(3)]
    for each in long:
        tasks.add(each)
    with pytest.raises(QueueFull):
        tasks.add(job(LONG))
    short = job(SHORT)
    tasks.add(short)
    assert [type(each.done.exception()) if each.done.done() else None for each in long] == [
        None,
        None,
        QueueFull,
    ]
    assert tasks.first() is short


async def test_who_has_left_no_longer_counts(
    tasks: WaitingTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING_BYTES", 10)
    gone = job(SHORT, b"0123456789")
    tasks.add(gone)
    with pytest.raises(QueueFull):
        tasks.add(job(SHORT + 1, b"0"))
    tasks.leave(gone)
    tasks.leave(gone)
    tasks.add(job(SHORT, b"0123456789"))
    assert len(tasks) == 1
