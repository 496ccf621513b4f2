from __future__ import annotations

import asyncio
import threading

import pytest

from cluster.errors import NotReady, WorkerLost
from cluster.process.background import Background, CancelledByOthers, Loss, until_one_ends


async def test_what_is_kept_is_started_again_after_it_failed() -> None:
    starts: list[int] = []
    third = asyncio.Event()

    async def work() -> None:
        starts.append(len(starts))
        if len(starts) < 3:
            raise ValueError("not yet")
        third.set()
        await asyncio.Event().wait()

    background = Background(pytest.fail)
    background.keep("work", work)
    async with asyncio.timeout(30):
        await third.wait()
    assert starts == [0, 1, 2]
    await background.close()


async def test_the_end_of_what_is_needed_is_told_with_its_cause() -> None:
    lost: asyncio.Queue[Loss] = asyncio.Queue()

    async def fails() -> None:
        raise OSError("no space")

    async def returns() -> None:
        pass

    background = Background(lost.put_nowait)
    background.need("writer", fails())
    first = await lost.get()
    background.need("reader", returns())
    second = await lost.get()
    assert str(first) == "writer has failed: OSError: no space"
    assert str(second) == "reader has ended"
    await background.close()


async def test_a_thread_that_dies_is_told() -> None:
    lost: asyncio.Queue[Loss] = asyncio.Queue()

    def dies() -> None:
        raise RuntimeError("gone")

    background = Background(lost.put_nowait)
    background.thread("intake", dies)
    loss = await lost.get()
    assert (loss.name, str(loss.cause)) == ("intake", "gone")
    await background.close()


async def test_a_close_is_no_loss_and_leaves_no_task() -> None:
    background = Background(pytest.fail)
    ended = threading.Event()
    stop = threading.Event()

    def runs() -> None:
        stop.wait()
        ended.set()

    background.thread("thread", runs)
    tasks = [
        background.need("needed", asyncio.Event().wait()),
        background.keep("kept", lambda: asyncio.Event().wait()),
        background.once("once", asyncio.Event().wait()),
    ]
    await asyncio.sleep(0)
    await background.close()
    stop.set()
    await asyncio.to_thread(ended.wait, 10)
    await asyncio.sleep(0)
    assert all(task.done() for task in tasks)


async def test_a_failure_of_what_runs_once_harms_nobody() -> None:
    async def fails() -> None:
        raise ValueError("once")

    background = Background(pytest.fail)
    await background.once("greeting", fails())
    await background.close()


async def test_a_typed_error_is_told_without_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    lost: asyncio.Queue[Loss] = asyncio.Queue()

    async def ends() -> None:
        raise WorkerLost("the engine died: SIGKILL")

    background = Background(lost.put_nowait)
    background.need("engine", ends())
    await lost.get()
    await background.close()
    said = capsys.readouterr()
    assert "the engine died: SIGKILL" in said.out + said.err
    assert "Traceback" not in said.out + said.err


async def outcome_at_once(*ends: Exception | None) -> BaseException | int:
    """What parts that end in one turn of the loop, each with its own, are reported as."""
    gate = asyncio.Event()

    async def part(end: Exception | None) -> None:
        await gate.wait()
        if end is not None:
            raise end

    running = asyncio.create_task(until_one_ends(*map(part, ends)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gate.set()
    return (await asyncio.gather(running, return_exceptions=True))[0]


LOST, REFUSED, BUG = WorkerLost("closed"), NotReady("loading"), KeyError("a bug")


@pytest.mark.parametrize(
    ("ends", "cause"),
    [
        ((None, LOST), LOST),
        ((LOST, None), LOST),
        ((LOST, BUG), BUG),
        ((BUG, LOST), BUG),
        ((None, LOST, None, BUG), BUG),
        ((LOST, REFUSED), LOST),
        ((REFUSED, LOST), REFUSED),
        ((None, None), 0),
    ],
)
async def test_of_parts_that_end_at_once_the_cause_is_reported(
    ends: tuple[Exception | None, ...], cause: Exception | int
) -> None:
    for _ in range(20):  # as chance has it, where tasks are looked at in no order
        assert await outcome_at_once(*ends) is cause


async def test_a_part_that_fails_as_it_is_cancelled_is_no_cause() -> None:
    async def fails_late() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise BUG

    async def returns() -> None:
        await asyncio.sleep(0)

    await until_one_ends(fails_late(), returns())


async def test_who_of_several_ended_first_is_told_and_the_others_are_cancelled() -> None:
    cancelled: list[str] = []

    async def waits(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    assert await until_one_ends(waits("a"), asyncio.sleep(0), waits("c")) == 1
    assert cancelled == ["a", "c"]
    assert await until_one_ends(asyncio.sleep(0), asyncio.sleep(0)) == 0


async def waits_in_vain() -> None:
    """Somebody else cancels what it waits for."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(answer.cancel)
    await answer


async def test_what_is_kept_is_started_again_when_what_it_waits_for_is_cancelled() -> None:
    num_starts = 0

    async def make() -> None:
        nonlocal num_starts
        num_starts += 1
        await (waits_in_vain() if num_starts == 1 else asyncio.Event().wait())

    background = Background(pytest.fail, sleep=no_time)
    task = background.keep("kept", make)
    async with asyncio.timeout(10):
        while num_starts < 2:
            await asyncio.sleep(0)
    assert not task.done()
    await background.close()
    assert task.cancelled()


async def no_time(seconds: float) -> None:
    await asyncio.sleep(0)


async def test_a_need_is_lost_when_what_it_waits_for_is_cancelled() -> None:
    lost: asyncio.Queue[Loss] = asyncio.Queue()
    background = Background(lost.put_nowait)
    background.need("needed", waits_in_vain())
    async with asyncio.timeout(10):
        assert isinstance((await lost.get()).cause, CancelledByOthers)
    await background.close()


async def test_what_runs_once_says_so_when_what_it_waits_for_is_cancelled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    background = Background(pytest.fail)
    task = background.once("greeting", waits_in_vain())
    await asyncio.wait((task,))
    await background.close()
    said = capsys.readouterr()
    assert "CancelledByOthers" in said.out + said.err


async def test_a_part_whose_wait_is_cancelled_has_failed_and_its_owner_is_not_cancelled() -> None:
    with pytest.raises(CancelledByOthers):
        await until_one_ends(asyncio.Event().wait(), waits_in_vain())
