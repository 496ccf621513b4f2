"""The next worker of a request may have to come first: it is waited for, as by new requests."""

import asyncio

import pytest

from cluster.errors import WorkerLost
from cluster.identity import Role
from cluster.process.loop_share import LoopShare
from router.fleet import fleet
from tests.router.dispatch_bench import PROMPT, outcome
from tests.router.fake_decode_worker import error_frame, until
from tests.router.model_worker import (
    ModelWorker,
    Trouble,
    dies,
    loses_its_engine,
    says_nothing_more,
)
from tests.router.streams_bench import LENGTH, bench, undisturbed, wishes

GENEROUS_S = 60.0


def refuses(worker: ModelWorker, request_id: str) -> None:
    worker.send(error_frame(request_id, "draining", "this worker is draining"))


def has_no_blocks(worker: ModelWorker, request_id: str) -> None:
    worker.send(error_frame(request_id, "out_of_blocks", "no block is free"))


@pytest.fixture(autouse=True)
def grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the next worker may take its time."""
    monkeypatch.setattr(fleet, "NO_WORKER_GRACE_S", GENEROUS_S)


async def test_an_answer_whose_only_worker_is_lost_goes_on_with_one_that_comes() -> None:
    async with bench(1) as here, ModelWorker("decode-other", here.troubles) as other:
        asked, expected = await undisturbed(here, "two choices")
        answering = asyncio.create_task(here.ask("r1", asked, Trouble(5, loses_its_engine)))
        await until(lambda: here.plane.fleet.state_of(here.plane.fleet.members[0]) == "resting")
        assert not answering.done()
        await here.plane.store.join(other.member())
        assert await answering == expected
        assert [len(item.token_ids) for item in other.submitted[0].resume] == [5, 5]


async def test_an_answer_whose_worker_has_only_lost_its_session_goes_on_there() -> None:
    async with bench(1) as here:
        asked, expected = await undisturbed(here, "one choice")
        assert await here.ask("r1", asked, Trouble(5, dies)) == expected
        assert [begun for _, begun in here.given("r1")] == [[], [5]]
        assert here.continued("worker_lost") == 1


async def test_a_session_that_is_lost_twice_under_a_request_is_not_tried_again() -> None:
    async with bench(1) as here:
        with pytest.raises(WorkerLost, match="decode workers were lost 2 times"):
            await here.ask("r1", wishes(), Trouble(5, dies), Trouble(5, dies))
        assert outcome(here.plane, "request_given_up") == 1


async def test_an_answer_waits_for_a_worker_that_has_room_for_it() -> None:
    async with (
        bench(1) as here,
        ModelWorker("decode-small", here.troubles) as small,
        ModelWorker("decode-other", here.troubles) as other,
    ):
        asked, expected = await undisturbed(here, "one choice")
        held = Trouble(5, says_nothing_more)
        answering = asyncio.create_task(here.ask("r1", asked, held))
        await until(lambda: here.plane.source._evacuation.num_staying == 1)
        await here.plane.store.join(small.member(max_context_tokens=len(PROMPT) + LENGTH - 1))
        await until(lambda: len(here.plane.fleet.open(Role.DECODE)) == 2)
        loses_its_engine(here.workers[0], "r1")
        await until(lambda: here.plane.source._evacuation.num_staying == 0)
        await here.plane.store.join(other.member())
        assert await answering == expected
        assert (len(small.submitted), len(other.submitted)) == (0, 1)


async def test_a_worker_that_refused_counts_for_no_loss() -> None:
    async with bench(3) as here:
        asked, expected = await undisturbed(here, "one choice")
        for name, how in (("r1", refuses), ("r2", has_no_blocks)):
            await until(lambda: len(here.plane.fleet.open(Role.DECODE)) == 3)
            troubles = [Trouble(0, how), Trouble(5, loses_its_engine)]
            assert await here.ask(name, asked, *troubles) == expected
            assert len(here.given(name)) == 3


async def test_where_none_comes_the_client_is_told_of_the_last_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet, "NO_WORKER_GRACE_S", 0.05)
    async with bench(2) as here:
        with pytest.raises(WorkerLost, match="killed by signal 9"):
            await here.ask("r1", wishes(), Trouble(0, has_no_blocks), Trouble(0, loses_its_engine))
        assert len(here.given("r1")) == 2


async def test_nobody_is_waited_for_once_the_router_stops() -> None:
    async with bench(1) as here:
        answering = asyncio.create_task(here.ask("r1", wishes(), Trouble(5, loses_its_engine)))
        await until(lambda: here.plane.fleet.state_of(here.plane.fleet.members[0]) == "resting")
        async with asyncio.timeout(GENEROUS_S / 2):
            await here.plane.fleet.close()
            with pytest.raises(WorkerLost):
                await answering


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
