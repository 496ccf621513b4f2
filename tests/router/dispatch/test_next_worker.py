"""Where a request goes on, and what its client is told where that is nowhere."""

import asyncio

import pytest

from cluster.errors import WorkerLost
from cluster.identity import Role
from cluster.process.loop_share import LoopShare
from tests.router.fake_decode_worker import error_frame, until
from tests.router.model_worker import (
    ModelWorker,
    Trouble,
    loses_its_engine,
)
from tests.router.streams_bench import bench, undisturbed, wishes


def refuses(worker: ModelWorker, request_id: str) -> None:
    worker.send(error_frame(request_id, "draining", "this worker is draining"))


def has_no_blocks(worker: ModelWorker, request_id: str) -> None:
    worker.send(error_frame(request_id, "out_of_blocks", "no block is free"))


async def test_a_worker_that_refused_counts_for_no_loss() -> None:
    async with bench(3) as here:
        asked, expected = await undisturbed(here, "one choice")
        for name, how in (("r1", refuses), ("r2", has_no_blocks)):
            await until(lambda: len(here.plane.fleet.open(Role.DECODE)) == 3)
            troubles = [Trouble(0, how), Trouble(5, loses_its_engine)]
            assert await here.ask(name, asked, *troubles) == expected
            assert len(here.given(name)) == 3


async def test_where_none_is_left_the_client_is_told_of_the_last_worker() -> None:
    async with bench(2) as here:
        with pytest.raises(WorkerLost, match="killed by signal 9"):
            await here.ask("r1", wishes(), Trouble(0, has_no_blocks), Trouble(0, loses_its_engine))
        assert len(here.given("r1")) == 2


async def test_answers_of_a_lost_worker_go_on_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many at once would hold the loop: a long prompt takes most of a millisecond."""
    num_turns, breathe = 0, LoopShare.breathe

    async def counted(share: LoopShare) -> None:
        nonlocal num_turns
        num_turns += share is here.plane.source._share
        await breathe(share)

    async with bench() as here:
        monkeypatch.setattr(LoopShare, "breathe", counted)
        lost = Trouble(5, loses_its_engine)
        await asyncio.gather(*(here.ask(f"r{number}", wishes(), lost) for number in range(8)))
        assert num_turns == here.continued("worker_lost") == 8
