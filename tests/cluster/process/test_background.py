from __future__ import annotations

import asyncio
import threading

import pytest

from cluster.errors import WorkerLost
from cluster.process.background import Background, Loss


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
