"""A stopped, deadlocked or endless engine is ended; a slow one, and a late watcher, are not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from cluster.engine_options import EngineOptions
from cluster.errors import InternalError
from cluster.process.signs_of_life import SignsOfLife
from engine.contract.commands import Submit
from engine.contract.messages import AwaitsRanks, Beat, LoadProgress
from engine.offline.queue import Completion, collect
from ranks.collectives.call_wait import CallWait
from tests.cli.run_cli import ROOT, clean_environ
from tests.engine.process.test_engine_process import make_spec
from tests.engine.step.engine_scenario import VirtualClock, request
from tests.ranks.fork_client import ForkedChild, fork_client
from worker.engine import client as engine_client
from worker.engine import engine_child
from worker.engine.client import EngineClient
from worker.engine.engine_child import EngineChild
from worker.engine.scripted_link import scripted_ready
from worker.engine.vitals import LONG_STEP_S, Vitals

DEADLINE_S = 60.0


class Watched:
    """Vitals of an engine whose processor time and clock a test turns."""

    def __init__(self, **limits: float) -> None:
        self.clock = VirtualClock()
        self.signs = SignsOfLife(is_stopped=False, is_busy=False, cpu_ticks=0)
        given = {"engine_silence_s": 3.0, "step_timeout_s": 60.0, "start_timeout_s": 20.0}
        options = EngineOptions(**(given | limits))  # type: ignore[arg-type]
        self.vitals = Vitals(options, lambda: self.signs, clock=self.clock)

    def pass_time(self, seconds: float, *, works: bool) -> str | None:
        """Ticks on time; the first reason to end the engine."""
        for _ in range(round(seconds / self.vitals.interval_s)):
            self.clock.now_s += self.vitals.interval_s
            self.signs = replace(self.signs, cpu_ticks=self.signs.cpu_ticks + 2 * works)
            if (why := self.vitals.tick()) is not None:
                return why
        return None


@pytest.fixture
def serving() -> Watched:
    watched = Watched()
    watched.vitals.heard(scripted_ready())
    return watched


def test_the_default_limit_leaves_time_for_an_answer_elsewhere() -> None:
    """Of the five seconds after which a request has been answered, half."""
    watched = Watched(engine_silence_s=EngineOptions().engine_silence_s)
    watched.vitals.heard(scripted_ready())
    assert watched.pass_time(2.5, works=False) is not None


def test_an_engine_that_neither_speaks_nor_works_stands_still(serving: Watched) -> None:
    assert serving.pass_time(2.5, works=False) is None
    assert "stood still for 3 s" in str(serving.pass_time(2.0, works=False))


def test_an_engine_that_gets_no_core_or_waits_for_a_page_is_let_be_until_its_step_is_endless(
    serving: Watched,
) -> None:
    serving.signs = replace(serving.signs, is_busy=True)
    assert serving.pass_time(50, works=False) is None
    assert serving.vitals.is_in_long_step
    assert "did not end a step in 60 s" in str(serving.pass_time(20, works=False))


def test_a_stopped_engine_stands_still_whatever_it_has_started_does(serving: Watched) -> None:
    serving.signs = replace(serving.signs, is_stopped=True, is_busy=True)
    assert "stood still for 3 s" in str(serving.pass_time(4.0, works=True))


def test_a_beat_is_enough_to_live(serving: Watched) -> None:
    for turn in range(20):
        assert serving.pass_time(2.5, works=False) is None
        serving.vitals.heard(Beat(turn))


def test_an_engine_that_waits_for_a_living_rank_is_in_a_long_step_until_it_is_endless(
    serving: Watched,
) -> None:
    def wait(seconds: float) -> str | None:
        for _ in range(round(seconds / serving.vitals.interval_s)):
            serving.vitals.heard(AwaitsRanks())
            if (why := serving.pass_time(serving.vitals.interval_s, works=False)) is not None:
                return why
        return None

    assert wait(50) is None
    assert serving.vitals.is_in_long_step
    assert "did not end a step in 60 s" in str(wait(20))


def test_an_engine_that_is_stopped_after_it_waited_for_a_rank_stands_still(
    serving: Watched,
) -> None:
    serving.vitals.heard(AwaitsRanks())
    assert "stood still for 3 s" in str(serving.pass_time(4.0, works=False))


class ShortCalls:
    """A collective of one that waits, works a little, and waits again, until it `stands`."""

    def __init__(self, serving: Watched, *, wait_s: float, work_s: float) -> None:
        self._serving, self._wait_s, self._work_s = serving, wait_s, work_s
        self._began_s = serving.clock.now_s
        self.in_call_since_s: float | None = None
        self.waited_s = 0.0
        self.stands = False
        self._waits = CallWait(self, limit_s=60.0, clock=serving.clock)

    def pass_time(self, seconds: float) -> str | None:
        """As Watched, beside a watch that tells of waits when it looks."""
        vitals, silent_s = self._serving.vitals, 0.0
        for _ in range(round(seconds / vitals.interval_s)):
            if not self.stands:
                self._turn()
            if self._waits():
                vitals.heard(AwaitsRanks())
            if (why := self._serving.pass_time(vitals.interval_s, works=False)) is not None:
                return why
            silent_s = 0.0 if vitals.is_in_long_step else silent_s + vitals.interval_s
            assert self.stands or silent_s < 2 * LONG_STEP_S
        return None

    def _turn(self) -> None:
        period_s = self._wait_s + self._work_s
        num_done, phase_s = divmod(self._serving.clock.now_s - self._began_s, period_s)
        is_waiting = phase_s < self._wait_s
        self.in_call_since_s = self._began_s + num_done * period_s if is_waiting else None
        self.waited_s = self._wait_s * (num_done + (not is_waiting))
        worked_s = self._work_s * num_done + max(0.0, phase_s - self._wait_s)
        self._serving.signs = SignsOfLife(False, not is_waiting, int(worked_s / 0.01))


@pytest.mark.parametrize("wait_s", [0.05, 0.15, 0.3, 0.39, 0.45])
def test_an_engine_of_many_short_waits_for_ranks_is_in_a_long_step(
    wait_s: float, serving: Watched
) -> None:
    calls = ShortCalls(serving, wait_s=wait_s, work_s=0.005)
    assert calls.pass_time(50) is None
    assert "did not end a step in 60 s" in str(calls.pass_time(20))


@pytest.mark.parametrize("wait_s", [0.15, 0.3])
def test_an_engine_that_stands_after_many_short_waits_stands_still(
    wait_s: float, serving: Watched
) -> None:
    calls = ShortCalls(serving, wait_s=wait_s, work_s=0.005)
    assert calls.pass_time(20) is None
    calls.stands, calls.in_call_since_s = True, None
    serving.signs = replace(serving.signs, is_busy=False)
    assert "stood still for 3 s" in str(calls.pass_time(4.0))


def test_a_long_step_is_no_standstill_until_it_is_endless(serving: Watched) -> None:
    assert serving.pass_time(50, works=True) is None
    assert "did not end a step in 60 s" in str(serving.pass_time(20, works=True))


def test_only_work_without_a_word_for_longer_than_between_two_beats_is_a_long_step(
    serving: Watched,
) -> None:
    for turn in range(10):
        serving.pass_time(0.5, works=True)
        assert not serving.vitals.is_in_long_step
        serving.vitals.heard(Beat(turn))
    serving.pass_time(2.0, works=True)
    assert serving.vitals.is_in_long_step
    serving.pass_time(0.5, works=False)
    assert not serving.vitals.is_in_long_step


def test_our_own_lateness_is_not_the_engines_silence(serving: Watched) -> None:
    for _ in range(2):
        serving.clock.now_s += 3600  # the machine slept
        assert serving.vitals.tick() is None
    assert serving.pass_time(1.0, works=False) is None


def test_a_start_is_judged_by_its_progress_alone() -> None:
    starting = Watched()
    for phase in range(5):
        starting.vitals.heard(LoadProgress(f"phase {phase}", 0.0))
        assert starting.pass_time(18, works=False) is None
    why = starting.pass_time(5, works=True)
    assert "no progress for 20 s while it was at: phase 4" in str(why)


@pytest.fixture(autouse=True)
def engines_are_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """How an engine's process starts is asked elsewhere (test_engine_process.py)."""

    def fork(entry_module: str, launch_file: Path) -> ForkedChild:
        child = fork_client().begin(entry_module, os.environ, leads_session=True)
        with child.stdin as launch:
            launch.write(launch_file.read_bytes())
        return child

    monkeypatch.setattr(engine_child, "_spawn", fork)


@contextlib.asynccontextmanager
async def odd_engine(oddity: str, **limits: Any) -> AsyncIterator[EngineClient]:
    spec = spec_named(oddity, **({"engine_silence_s": 1.0} | limits))
    client = EngineClient(entry_module="tests.worker.odd_process", spec=spec)
    try:
        yield client
    finally:
        async with asyncio.timeout(DEADLINE_S):
            await client.stop()


async def last_of(client: EngineClient, request_id: str) -> str:
    """The error code that a request ends with; empty when it went well."""
    done = {request_id: Completion()}
    async with asyncio.timeout(DEADLINE_S):
        async for frame in client.frames():
            collect(frame, done)
            if (ended := done[request_id].ended) is not None:
                return ended.error_code
    return f"none: {await client.died}"


def spec_named(worker_id: str, **limits: Any) -> Any:
    return msgspec.structs.replace(make_spec(**limits), worker_id=worker_id)


async def test_a_stopped_engine_is_ended_and_has_died() -> None:
    async with odd_engine("") as client:
        ready = await client.start()
        os.kill(ready.pid, signal.SIGSTOP)
        async with asyncio.timeout(DEADLINE_S):
            assert "stood still for 1 s" in await client.died
        assert [frame async for frame in client.frames()] == []
        assert not psutil.pid_exists(ready.pid)


KILLED = """
import asyncio, os, signal
from tests.worker.engine.test_vitals import odd_engine
async def main():
    async with odd_engine("") as client:
        await client.start()
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """pytest's own are too long for sockets, where its name holds the test's and the process's."""
    with tempfile.TemporaryDirectory(prefix="of-test-", dir="/tmp") as folder:
        yield Path(folder)


async def test_what_a_killed_server_leaves_is_removed_by_the_next_one(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = clean_environ() | {"TMPDIR": str(short_folder)}
    server = (sys.executable, "-c", KILLED)
    await asyncio.to_thread(subprocess.run, server, cwd=ROOT, env=environ, check=False)
    (left,) = short_folder.glob("splitserve-*")
    assert {"launch", "commands", "frames"} <= {each.name for each in left.iterdir()}
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))
    async with odd_engine(""):
        assert not left.exists()
    assert list(short_folder.glob("*splitserve-*")) == []


async def test_an_engine_that_cannot_be_killed_is_given_up_and_has_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kills: list[EngineChild] = []
    async with odd_engine("") as client:
        ready = await client.start()
        with monkeypatch.context() as kernel:  # a driver keeps it: SIGKILL does nothing
            kernel.setattr(EngineChild, "_signal_group", lambda child: kills.append(child))
            kernel.setattr(engine_child, "KILL_TIMEOUT_S", 1.0)
            os.kill(ready.pid, signal.SIGSTOP)
            async with asyncio.timeout(DEADLINE_S):
                assert (
                    "stood still for 1 s (--engine-silence-s) and cannot be killed"
                    in await client.died
                )
        assert len(kills) == 1
        os.kill(ready.pid, signal.SIGKILL)
        await asyncio.to_thread(kills[0]._child.wait, DEADLINE_S)


async def test_an_engine_that_takes_its_time_to_stop_is_not_killed_for_its_silence() -> None:
    async with odd_engine("") as client:
        ready = await client.start()
        os.kill(ready.pid, signal.SIGSTOP)
        stopping = asyncio.create_task(client.stop())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3.0):  # three times the limit of silence
                await asyncio.shield(stopping)
        os.kill(ready.pid, signal.SIGCONT)
        async with asyncio.timeout(DEADLINE_S):
            await stopping
        assert not client.died.done()


async def test_an_engine_that_hangs_in_a_step_is_ended() -> None:
    async with odd_engine("hangs in a step") as client:
        await client.start()
        await client.send(Submit(request("a", [1, 2])))
        async with asyncio.timeout(DEADLINE_S):
            assert "stood still" in await client.died


async def test_a_step_that_works_longer_than_the_limit_of_silence_is_let_be() -> None:
    async with odd_engine("works long in a step", engine_silence_s=0.3) as client:
        await client.start()
        await client.send(Submit(request("a", [1, 2], max_tokens=1)))
        assert await last_of(client, "a") == ""
        assert not client.died.done()


async def test_a_step_whose_main_thread_only_waits_for_one_that_works_is_let_be() -> None:
    async with odd_engine("waits for a thread", engine_silence_s=0.3) as client:
        await client.start()
        await client.send(Submit(request("a", [1, 2], max_tokens=1)))
        assert await last_of(client, "a") == ""


async def test_an_engine_that_loses_its_device_ends_with_its_cause() -> None:
    async with odd_engine("loses its device") as client:
        await client.start()
        await client.send(Submit(request("a", [1, 2])))
        async with asyncio.timeout(DEADLINE_S):
            assert "illegal memory access" in await client.died


async def test_what_an_engine_says_as_it_ends_after_its_start_is_the_cause_of_its_death() -> None:
    async with odd_engine("loses its pool") as client:
        await client.start()
        await client.send(Submit(request("a", [1, 2, 3])))
        async with asyncio.timeout(DEADLINE_S):
            assert "the pool of GPU 3 is gone" in await client.died
        assert client._child is not None and "exit code 1" in client._child.ended.result()


async def test_a_failed_engine_that_hangs_in_its_end_is_ended_with_the_cause_that_it_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_client, "LAST_WORD_TIMEOUT_S", 0.5)
    async with odd_engine("hangs in its end") as client:
        await client.start()
        await client.send(Submit(request("a", [1, 2, 3])))
        async with asyncio.timeout(DEADLINE_S):
            assert "the pool of GPU 3 is gone" in await client.died


async def test_a_start_without_progress_is_ended() -> None:
    async with odd_engine("never starts", start_timeout_s=5.0) as client:
        phases: list[LoadProgress] = []
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(InternalError, match="no progress for 5 s"):
                await client.start(phases.append)


async def test_the_end_is_noticed_though_a_helper_still_holds_the_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with odd_engine("leaves a helper") as client:
        async with asyncio.timeout(DEADLINE_S / 2):  # the helper lives longer
            with pytest.raises(InternalError, match="exit code 3"):
                await client.start()
    helper = re.search(r"helper (\d+)", capfd.readouterr().err)
    assert helper is not None
    assert psutil.pid_exists(int(helper[1]))
    os.kill(int(helper[1]), signal.SIGKILL)
