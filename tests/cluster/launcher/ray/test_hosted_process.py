"""A process in the hands of an actor, whose starter may be gone without a word. No Ray."""

from __future__ import annotations

import asyncio
import signal

import psutil
import pytest

from cluster.launcher.local import LocalProcess
from cluster.launcher.protocol import ProcessExit
from cluster.launcher.ray import hosted_process
from cluster.launcher.ray.hosted_process import HostedProcess
from cluster.launcher.ray.lease import NewsLease
from tests.cluster.child_programs import SERVES_UNTIL_SIGTERM, STARTS_ANOTHER, program

DEADLINE_S = 60.0
LEASE_S = 20.0


class Time:
    """Of a lease: passes when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._looks = asyncio.Semaphore(0)
        self._next_look = asyncio.Event()

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self._next_look.set()
        await self._looks.acquire()
        self.now_s += seconds

    async def look_once(self) -> None:
        """Lets the next look of the lease happen, if it has not run out."""
        await self._next_look.wait()
        self._next_look.clear()
        self._looks.release()


async def test_a_process_whose_news_nobody_asks_for_ends_and_its_actor_with_it() -> None:
    actor_left, time = asyncio.Event(), Time()
    hosted = HostedProcess(NewsLease(LEASE_S, clock=time, sleep=time.sleep), actor_left.set)
    process = psutil.Process(await hosted.start(program(STARTS_ANOTHER), {}))
    asking = asyncio.ensure_future(hosted.news())
    async with asyncio.timeout(DEADLINE_S):
        while time.now_s < 0.9 * LEASE_S:
            await time.look_once()
        await asking
        again = asyncio.ensure_future(hosted.news())
        while time.now_s < 1.8 * LEASE_S:
            await time.look_once()
        assert process.is_running() and not actor_left.is_set()
        looking = asyncio.ensure_future(look_on(time))
        await actor_left.wait()
        looking.cancel()
        assert not process.is_running()
        assert (await again)[-1] == ProcessExit(status=-signal.SIGKILL)


async def look_on(time: Time) -> None:
    while True:
        await time.look_once()


async def test_who_asks_when_there_is_nothing_new_is_told_so_and_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosted_process, "ASKED_EVERY_S", 0.01)
    hosted = HostedProcess()
    await hosted.start(program(SERVES_UNTIL_SIGTERM), {})
    async with asyncio.timeout(DEADLINE_S):
        while await hosted.news():
            pass
        await hosted.stop(at_once=True)
        while not any(isinstance(piece, ProcessExit) for piece in await hosted.news()):
            pass


async def test_an_actor_that_cannot_tell_any_more_ends_and_its_process_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(process: LocalProcess) -> object:
        raise OSError("its pipe is broken")

    actor_left = asyncio.Event()
    monkeypatch.setattr(LocalProcess, "reports", broken)
    hosted = HostedProcess(end_of_actor=actor_left.set)
    await hosted.start(program(SERVES_UNTIL_SIGTERM), {})
    assert hosted._process is not None
    async with asyncio.timeout(DEADLINE_S):
        await actor_left.wait()
        await hosted._process.wait()
