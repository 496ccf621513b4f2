"""One run of a fleet under an operator's signals, wherever it runs.

    start -> began -> until it is lost, or a signal -> stop

exit code 0 after SIGTERM, 130 after Ctrl-C, 1 when it could not start or was lost
"""

from __future__ import annotations

import asyncio
import signal
from typing import Protocol

from cli.exit_code import ExitCode
from cli.terminal import complain
from cluster.process.background import until_one_ends
from cluster.supervisor.child import StartFailed
from cluster.supervisor.failure import ProcessFailure


class ServedFleet(Protocol):
    """A fleet of one kind of place: processes of this machine or of a Ray cluster under a
    supervisor (serve.py), pods of a release on Kubernetes (serve_release.py). Called from one event
    loop, each once and in this order, but for `kill`."""

    async def start(self) -> None:
        """Returns when all of it takes requests. Raises StartFailed. May be cancelled."""

    def began(self) -> None:
        """All of it takes requests, and nobody has asked for its end: told to the operator."""

    async def until_lost(self) -> ProcessFailure:
        """Returns why it cannot be kept any more; also while it starts. May be cancelled, and asked
        again."""

    async def stop(self, failure: ProcessFailure | None) -> None:
        """Requests end first. When it returns nothing is left of what `start` began. `failure`: why
        it ends, if nobody has asked for it. Awaited in any case, also after a failed start."""

    def kill(self) -> None:
        """`stop` returns as soon as it can: an operator insists."""


class ServeRun:
    """Of one fleet, from the main thread."""

    def __init__(self, fleet: ServedFleet) -> None:
        self._fleet = fleet
        self._stop = asyncio.Event()
        self._exit_code = ExitCode.OK

    async def run(self) -> ExitCode:
        """Until a signal, a failed start or a loss; the fleet has been stopped when it returns."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_signal, ExitCode.INTERRUPTED)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, ExitCode.OK)
        failure: ProcessFailure | None = None
        try:
            failure = await self._serve_until_stopped()
        finally:
            await self._fleet.stop(failure)
        if failure is None:
            return self._exit_code
        complain(f"{failure.name}: {failure.how}: {failure.cause}", remedy=failure.remedy)
        return ExitCode.FAILED

    async def _serve_until_stopped(self) -> ProcessFailure | None:
        """Why the start failed, if it did, or why the fleet cannot be kept alive."""
        losses: list[ProcessFailure] = []

        async def lost() -> None:
            losses.append(await self._fleet.until_lost())

        try:
            await until_one_ends(self._stop.wait(), lost(), self._fleet.start())
        except StartFailed as cause:
            return None if self._stop.is_set() else cause.failure
        if not self._stop.is_set() and not losses:
            self._fleet.began()
            await until_one_ends(self._stop.wait(), lost())
        return losses[0] if losses and not self._stop.is_set() else None

    def _on_signal(self, exit_code: ExitCode) -> None:
        """The first asks, the second insists."""
        if self._stop.is_set():
            self._fleet.kill()
        self._exit_code = exit_code
        self._stop.set()
