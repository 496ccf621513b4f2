"""Numbers as of the moment at which they are asked for, at few looks."""

from __future__ import annotations

import asyncio

from cluster.errors import WorkerLost
from router.vllm.fresh_looks import FreshLooks
from router.vllm.server_numbers import ServerNumbers
from tests.router.vllm.test_link import virtually


class SlowPage:
    """A look takes a second, and shows what was there when it began."""

    def __init__(self) -> None:
        self.num_looks = self.late_reads = 0
        self.is_there = True

    async def look(self) -> ServerNumbers:
        self.num_looks += 1
        numbers = ServerNumbers(late_reads=self.late_reads)
        await asyncio.sleep(1.0)
        if not self.is_there:
            raise WorkerLost("is not there")
        return numbers


@virtually
async def test_nobody_is_told_what_a_look_saw_that_had_begun_before() -> None:
    page = SlowPage()
    looks = FreshLooks(page.look)
    first = asyncio.create_task(looks.by_now())
    await asyncio.sleep(0.5)
    page.late_reads = 1
    later = await asyncio.gather(*(looks.by_now() for _ in range(100)))
    assert [numbers and numbers.late_reads for numbers in later] == [1] * 100
    numbers = await first
    assert numbers is not None and numbers.late_reads == 0 and page.num_looks == 2


@virtually
async def test_a_look_that_fails_is_told_to_all_who_wait_and_not_to_the_next() -> None:
    page = SlowPage()
    looks, page.is_there = FreshLooks(page.look), False
    assert await asyncio.gather(*(looks.by_now() for _ in range(9))) == [None] * 9
    assert page.num_looks <= 2
    page.is_there = True
    assert await looks.by_now() is not None


@virtually
async def test_who_leaves_in_the_middle_of_a_look_takes_nobodys_answer_along() -> None:
    page = SlowPage()
    looks = FreshLooks(page.look)
    leaves = asyncio.create_task(looks.by_now())
    stays = asyncio.create_task(looks.by_now())
    await asyncio.sleep(0.5)
    leaves.cancel()
    assert await stays is not None and page.num_looks == 2
