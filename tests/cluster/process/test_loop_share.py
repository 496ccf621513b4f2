"""Work in slices: how much of it happens in one turn of the loop."""

import asyncio
from collections import Counter

from cluster.process.loop_share import LoopShare

SLICE_S = 0.001
BUDGET_S = 0.002


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Turns:
    """Counts the turns of the loop, and the slices that were worked in each."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.share = LoopShare(BUDGET_S, clock=self.clock)
        self.now = 0
        self.slices = Counter[int]()
        self.order: list[int] = []

    async def count(self) -> None:
        while True:
            self.now += 1
            await asyncio.sleep(0)

    async def work(self, name: int, num_slices: int) -> None:
        for _ in range(num_slices):
            await self.share.breathe()
            self.clock.now_s += SLICE_S
            self.slices[self.now] += 1
            self.order.append(name)


async def run(num_workers: int, num_slices: int) -> Turns:
    turns = Turns()
    counting = asyncio.create_task(turns.count())
    await asyncio.gather(*(turns.work(name, num_slices) for name in range(num_workers)))
    counting.cancel()
    return turns


async def test_one_turn_of_the_loop_has_no_more_work_than_its_budget() -> None:
    turns = await run(num_workers=1, num_slices=100)
    assert max(turns.slices.values()) <= BUDGET_S / SLICE_S
    assert len(turns.slices) >= 50


async def test_many_who_share_the_loop_hold_it_no_longer_than_one() -> None:
    turns = await run(num_workers=16, num_slices=20)
    assert max(turns.slices.values()) <= BUDGET_S / SLICE_S + 1


async def test_nobody_waits_until_another_has_finished() -> None:
    turns = await run(num_workers=4, num_slices=50)
    first_half = Counter(turns.order[: len(turns.order) // 2])
    assert min(first_half.values()) >= 20


async def test_little_work_does_not_wait_for_a_turn() -> None:
    turns = Turns()
    await turns.share.breathe()
    for _ in range(10):
        before = turns.share.breathe()
        try:
            before.send(None)
        except StopIteration:
            continue
        raise AssertionError("it waited")


async def test_who_waits_for_a_turn_is_not_overtaken_by_who_comes_later() -> None:
    turns = Turns()
    await turns.work(0, num_slices=2)  # all of this turn's budget
    waiting = asyncio.create_task(turns.work(1, num_slices=1))
    await asyncio.sleep(0)  # it is in line
    later = asyncio.create_task(turns.work(2, num_slices=3))
    await asyncio.gather(waiting, later)
    assert turns.order == [0, 0, 1, 2, 2, 2]


async def test_a_turn_has_one_budget_however_often_it_is_asked_for() -> None:
    turns = Turns()
    for _ in range(3):
        await turns.share.breathe()
        turns.clock.now_s += BUDGET_S
    turns.now = 1
    told = asyncio.create_task(turns.count())
    await turns.share.breathe()
    assert turns.now > 1
    told.cancel()
