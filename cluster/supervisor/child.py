"""One process that is kept alive.

STARTING --ready--> SERVING --exit--> BACKOFF --delay--> STARTING
    |                                    ^
    |--exit, a restart ------------------'
    '--exit, the first time--> FAILED        the conductor is told by StartFailed
any of them --stop()--> STOPPED

A start without progress, and a process that has stopped giving signs of life, are made an exit. One
that is killed and stays, because a driver keeps it in the kernel, is given up after KILL_TIMEOUT_S.
"""

from __future__ import annotations

import asyncio
import enum
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from cluster.deadline import Clock, Sleep
from cluster.errors import SplitserveError
from cluster.launcher.protocol import Launcher, ProcessExit, ProcessHandle, ProcessSpec
from cluster.logs import get_logger
from cluster.process.background import Background, nothing_needed, until_one_ends
from cluster.process.backoff import Backoff
from cluster.process.exit_watch import KILL_TIMEOUT_S
from cluster.process.signs_of_life import SignsOfLife
from cluster.process.silence import Silence
from cluster.process.startup import (
    Leaving,
    ProcessReport,
    StartupFailed,
    StartupProgress,
    StartupReady,
    StillAlive,
)
from cluster.supervisor.failure import START_FAILED, ProcessFailure, explain
from cluster.supervisor.news import Loading, Restarting, Retiring, Serving, Watcher

_log = get_logger("supervisor")

START_EXCUSE_S = 60.0
"""Without a core or waiting for a page, while it starts: its limit is long enough for the rest."""
_FAREWELL_S = 5.0
"""How long a process that reported its failure may take to end by itself."""


class ChildState(enum.Enum):
    """Where a child is in the drawing above."""

    STARTING = "starting"
    SERVING = "serving"
    BACKOFF = "backoff"
    FAILED = "failed"
    STOPPED = "stopped"


class StartFailed(Exception):
    """A process ended before it was ready."""

    def __init__(self, failure: ProcessFailure) -> None:
        super().__init__(failure.cause)
        self.failure = failure


class Child:
    """Owns the handle of whatever process now bears the name. One task calls `start`, then
    `keep_alive`; `stop` and `kill` may come from another at any time."""

    def __init__(
        self,
        spec: ProcessSpec,
        launcher: Launcher,
        watcher: Watcher,
        backoff: Backoff,
        *,
        clock: Clock,
        sleep: Sleep,
    ) -> None:
        self.spec = spec
        self.state = ChildState.STARTING
        self._launcher = launcher
        self._watcher = watcher
        self._backoff = backoff
        self._clock = clock
        self._sleep = sleep
        self._handle: ProcessHandle | None = None
        self._reports: AsyncIterator[ProcessReport]
        self._stuck: StartupFailed | None = None
        """What this class ended the process for."""
        self._left: Leaving | None = None
        """Why it takes no requests any more, if it has said so."""
        self._says_when_it_lives = False
        self._is_killed = asyncio.Event()
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return self._handle.pid if self._handle is not None else None

    async def start(self) -> None:
        """Returns when the process takes requests. Raises StartFailed with the reason if not."""
        self.state = ChildState.STARTING
        self._stuck = self._left = None
        self._says_when_it_lives = False
        self._is_killed = asyncio.Event()
        self._handle = await self._launched()
        if self._stopping.is_set():
            self._kill_process()
        self._reports = self._handle.reports()
        reported = await self._await_ready()
        if not isinstance(reported, StartupReady):
            raise StartFailed(await self._failure(reported or self._stuck))
        self.state = ChildState.SERVING
        self._watcher(Serving(self.spec.name, self._handle.pid, reported.address, reported.facts))

    async def keep_alive(self) -> None:
        """Restarts the process whenever it ends; returns once it was told to stop."""
        failure, healthy_s = await self._serve()
        while not self._stopping.is_set():
            await self._back_off(failure, healthy_s=healthy_s)
            if self._stopping.is_set():
                break
            try:
                await self.start()
                failure, healthy_s = await self._serve()
            except StartFailed as cause:
                failure, healthy_s = cause.failure, 0.0
            except Exception as cause:  # of ours, or of a machine that has nothing left to give
                _log.exception("a process could not be started; it is tried again")
                failure = ProcessFailure(self.spec.name, "not started", repr(cause))
                healthy_s = 0.0
                self._kill_process()
        self.state = ChildState.STOPPED

    async def stop(self, grace_s: float) -> None:
        """Asks the process to finish; what still runs after `grace_s` is killed. One that is killed
        before, by whomever, is not waited for longer than KILL_TIMEOUT_S; one that was given up,
        not at all."""
        self._stopping.set()
        if (handle := self._handle) is not None:
            handle.stop()
            await until_one_ends(self._end_of(handle), self._kill_after(grace_s))
        self.state = ChildState.STOPPED

    def kill(self) -> None:
        """Ends the process and all it started, now."""
        self._stopping.set()
        self._kill_process()

    def end(self, why: str) -> None:
        """Ends a process that is of no use, and all it started; it is started again."""
        self._stuck = StartupFailed("useless", why)
        self._kill_process()

    async def _kill_after(self, grace_s: float) -> None:
        """Never returns."""
        await self._sleep(grace_s)
        self.kill()
        await asyncio.Event().wait()

    def _kill_process(self) -> None:
        if self._handle is not None:
            self._handle.stop(at_once=True)
            self._is_killed.set()

    async def _launched(self) -> ProcessHandle:
        try:
            return await self._launcher.launch(self.spec)
        except (SplitserveError, OSError) as error:  # of a machine that has nothing left, too
            failure = ProcessFailure(self.spec.name, "not started", str(error))
            raise StartFailed(failure) from error

    async def _await_ready(self) -> StartupReady | StartupFailed | None:
        """None: it closed the pipe without either, or was stuck, and may be even now."""
        said: list[StartupReady | StartupFailed] = []
        await until_one_ends(self._hear_start(said), self._late_death())
        return said[0] if said else None

    async def _hear_start(self, said: list[StartupReady | StartupFailed]) -> None:
        """Puts the last word of the start there, if there is one."""
        progress = Silence(
            self.spec.start_timeout_s, clock=self._clock, longest_excuse_s=START_EXCUSE_S
        )
        async with self._ended_when_silent(progress, "it made no progress while it started"):
            async for report in self._reports:
                match report:
                    case StartupProgress(phase=phase, fraction=fraction):
                        progress.heard()
                        self._watcher(Loading(self.spec.name, phase, fraction))
                    case StillAlive():
                        self._says_when_it_lives = True
                    case StartupReady() | StartupFailed():
                        said.append(report)
                        return

    async def _serve(self) -> tuple[ProcessFailure, float]:
        """Until the process ends: how, and how many seconds it had served."""
        assert self._handle is not None
        ready_s = self._clock()
        background = Background(nothing_needed)
        background.keep(f"signs of life of {self.spec.name}", self._listen)
        try:
            ended = await self._end_of(self._handle)
        finally:
            await background.close()
        failure = explain(self.spec.name, ended, self._stuck, self._left)
        return failure, self._clock() - ready_s

    async def _listen(self) -> None:
        """A process that has once said that it is alive has to go on saying so. Never returns."""
        if not self._says_when_it_lives:
            async for report in self._reports:
                if self._is_sign_of_life(report):
                    break
            else:
                await asyncio.Event().wait()  # it ends, or was never to be judged
        life = Silence(self.spec.silence_s, clock=self._clock)
        async with self._ended_when_silent(life, "it gave no sign of life"):
            async for report in self._reports:
                life.heard()
                self._is_sign_of_life(report)
            await asyncio.Event().wait()  # it ends, or is silent from now on

    def _is_sign_of_life(self, report: ProcessReport) -> bool:
        if isinstance(report, Leaving):
            self._left = report if report.code else self._left
            self._watcher(Retiring(self.spec.name))
            return False
        self._says_when_it_lives = True
        return True

    @asynccontextmanager
    async def _ended_when_silent(self, silence: Silence, words: str) -> AsyncIterator[None]:
        """Kills the process inside the block when nothing is heard for too long."""
        background = Background(nothing_needed)
        background.once(f"watch over {self.spec.name}", self._end_when_silent(silence, words))
        try:
            yield
        finally:
            await background.close()

    async def _end_when_silent(self, silence: Silence, words: str) -> None:
        """An event loop that gets no core, or waits for a page, cannot say that it lives."""
        before: SignsOfLife | None = None
        is_held_up = False
        while not silence.tick(is_excused=is_held_up):
            await self._sleep(silence.interval_s)
            now = None if self._handle is None else self._handle.signs_of_life()
            is_held_up = now is not None and now.are_held_up(before)
            before = now
        self._stuck = StartupFailed("stuck", f"{words} for {silence.limit_s:g} s and was ended")
        self._kill_process()

    async def _end_of(self, handle: ProcessHandle) -> ProcessExit:
        """How the process ends, whenever that is; once it was killed, within KILL_TIMEOUT_S."""
        if await until_one_ends(handle.wait(), self._late_death()) == 0:
            return await handle.wait()
        self._give_up(handle)
        return ProcessExit(status=-signal.SIGKILL)

    def _give_up(self, handle: ProcessHandle) -> None:
        """Once, however many wait for its end."""
        if handle is not self._handle:
            return
        self._handle = None
        _log.error(
            "a process cannot be killed and is given up; it may still hold its port and its memory",
            process=self.spec.name,
            process_pid=handle.pid,
        )

    async def _late_death(self) -> None:
        await self._is_killed.wait()
        await self._sleep(KILL_TIMEOUT_S)

    async def _failure(self, reported: StartupFailed | None) -> ProcessFailure:
        """The process has reported its failure, or has closed the pipe and so is ending."""
        assert self._handle is not None
        if not self._is_killed.is_set():
            await until_one_ends(self._handle.wait(), self._sleep(_FAREWELL_S))
        self._kill_process()
        self.state = ChildState.FAILED
        failure = explain(self.spec.name, await self._end_of(self._handle), reported)
        return replace(failure, kind=START_FAILED)

    async def _back_off(self, failure: ProcessFailure, *, healthy_s: float) -> None:
        self.state = ChildState.BACKOFF
        delay_s = self._backoff.next_delay_s(healthy_s=healthy_s)
        self._watcher(Restarting(failure, delay_s))
        await until_one_ends(self._stopping.wait(), self._sleep(delay_s))
