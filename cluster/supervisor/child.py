"""One process that is kept alive.

STARTING --ready--> SERVING --exit--> BACKOFF --delay--> STARTING
    |                                    ^
    |--exit, a restart ------------------'
    '--exit, the first time--> FAILED        the conductor is told by StartFailed
any of them --stop()--> STOPPED
"""

from __future__ import annotations

import asyncio
import enum
import time
from contextlib import suppress

from cluster.errors import SplitserveError
from cluster.launcher.protocol import Launcher, ProcessHandle, ProcessSpec
from cluster.process.backoff import Backoff
from cluster.process.startup import StartupFailed, StartupProgress, StartupReady
from cluster.supervisor.failure import ProcessFailure, explain
from cluster.supervisor.news import Loading, Restarting, Serving, Watcher

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
        self, spec: ProcessSpec, launcher: Launcher, watcher: Watcher, backoff: Backoff
    ) -> None:
        self.spec = spec
        self.state = ChildState.STARTING
        self._launcher = launcher
        self._watcher = watcher
        self._backoff = backoff
        self._handle: ProcessHandle | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return self._handle.pid if self._handle is not None else None

    async def start(self) -> None:
        """Returns when the process takes requests. Raises StartFailed with the reason if not."""
        self.state = ChildState.STARTING
        self._handle = await self._launched()
        reported: StartupFailed | None = None
        async for report in self._handle.reports():
            match report:
                case StartupProgress(phase=phase, fraction=fraction):
                    self._watcher(Loading(self.spec.name, phase, fraction))
                case StartupReady(address=address, facts=facts):
                    self.state = ChildState.SERVING
                    self._watcher(Serving(self.spec.name, self._handle.pid, address, facts))
                    return
                case StartupFailed():
                    reported = report
                    break
        raise StartFailed(await self._failure(reported))

    async def keep_alive(self) -> None:
        """Restarts the process whenever it ends; returns once it was told to stop."""
        assert self._handle is not None
        ready_at = time.monotonic()
        ended = await self._handle.wait()
        failure = explain(self.spec.name, ended, None)
        while not self._stopping.is_set():
            await self._back_off(failure, healthy_s=time.monotonic() - ready_at)
            if self._stopping.is_set():
                break
            try:
                await self.start()
                ready_at = time.monotonic()
                failure = explain(self.spec.name, await self._handle.wait(), None)
            except StartFailed as cause:
                ready_at = time.monotonic()
                failure = cause.failure
        self.state = ChildState.STOPPED

    async def stop(self, grace_s: float) -> None:
        """Asks the process to finish; what still runs after `grace_s` is killed."""
        self._stopping.set()
        if self._handle is None:
            return
        self._handle.stop()
        try:
            await asyncio.wait_for(self._handle.wait(), grace_s)
        except TimeoutError:
            self.kill()
            await self._handle.wait()
        self.state = ChildState.STOPPED

    def kill(self) -> None:
        """Ends the process and all it started, now."""
        self._stopping.set()
        if self._handle is not None:
            self._handle.stop(at_once=True)

    async def _launched(self) -> ProcessHandle:
        try:
            handle = await self._launcher.launch(self.spec)
        except SplitserveError as error:
            failure = ProcessFailure(self.spec.name, "not started", error.message)
            raise StartFailed(failure) from error
        if self._stopping.is_set():
            handle.stop(at_once=True)
        return handle

    async def _failure(self, reported: StartupFailed | None) -> ProcessFailure:
        """The process has reported its failure, or has closed the pipe and so is ending."""
        assert self._handle is not None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._handle.wait(), _FAREWELL_S)
        self._handle.stop(at_once=True)
        self.state = ChildState.FAILED
        return explain(self.spec.name, await self._handle.wait(), reported)

    async def _back_off(self, failure: ProcessFailure, *, healthy_s: float) -> None:
        self.state = ChildState.BACKOFF
        delay_s = self._backoff.next_delay_s(healthy_s=healthy_s)
        self._watcher(Restarting(failure, delay_s))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay_s)
