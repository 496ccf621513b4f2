"""A process that an actor hosts, seen from the launcher: see `ProcessHandle` for what is promised.

news of the actor -> output to the log, reports to whoever reads them, the end to `wait`
the actor is lost: its node was, or somebody killed it -> SIGKILL, with Ray's words as the cause,
once what is left of it on this machine is ended
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from cluster.launcher.output import ChildOutput
from cluster.launcher.protocol import ProcessExit
from cluster.launcher.ray.hosting import Host
from cluster.launcher.ray.machine import is_there
from cluster.process.background import Background
from cluster.process.exit_watch import KILL_TIMEOUT_S
from cluster.process.signs_of_life import SignsOfLife
from cluster.process.startup import ProcessReport

INSIST_S = 2.0
"""After a kill that nobody has answered the actor is ended."""
_POLL_S = 0.02


class RemoteProcess:
    """On the event loop's thread only."""

    def __init__(
        self,
        host: Host,
        pid: int,
        output: ChildOutput,
        *,
        log: str,
        on_end: Callable[[], Awaitable[None]],
    ) -> None:
        """`on_end` gives back the actor and its room, however often it is called, and does so at
        least before `wait` returns."""
        self._host = host
        self._pid = pid
        self._output = output
        self._log = log
        self._on_end = on_end
        self._is_killed = False
        self._reports: asyncio.Queue[ProcessReport | None] = asyncio.Queue()
        self._ended: asyncio.Future[ProcessExit] = asyncio.get_running_loop().create_future()
        self._background = Background(lambda loss: None)
        self._background.once(f"hosted process {pid}", self._follow())

    @property
    def pid(self) -> int:
        """On its own machine."""
        return self._pid

    async def reports(self) -> AsyncIterator[ProcessReport]:
        """See ProcessHandle."""
        while (report := await self._reports.get()) is not None:
            yield report

    async def wait(self) -> ProcessExit:
        """See ProcessHandle."""
        return await asyncio.shield(self._ended)

    def signs_of_life(self) -> SignsOfLife | None:
        """None on another machine."""
        return SignsOfLife.of_main_thread(self._pid) if self._host.is_on_this_machine else None

    def stop(self, *, at_once: bool = False) -> None:
        """See ProcessHandle."""
        if self._ended.done():
            return
        if not at_once:
            self._host.actor.stop.remote(False)
            return
        self._host.kill_process(self._pid)
        if not self._is_killed:
            self._is_killed = True
            self._background.once(f"end of {self._pid}", self._insist())

    async def _insist(self) -> None:
        await asyncio.wait([self._ended], timeout=INSIST_S)
        if not self._ended.done():
            self._host.put_down(self._pid)
            await self._on_end()

    async def _follow(self) -> None:
        """To its end, which is told whatever happens here."""
        printed = asyncio.StreamReader()
        reading = self._background.once(f"output of {self._pid}", self._output.follow(printed))
        ended = ProcessExit(status=-signal.SIGKILL)
        try:
            ended = await self._fetch(printed)
        except Exception as loss:  # Ray has many names for an actor, or a node, that is gone
            ended = replace(ended, cause="" if self._is_killed else self._host.in_words(loss))
            await self._end_what_is_left()
        finally:
            printed.feed_eof()
            try:
                await asyncio.wait([reading])
                await self._on_end()
            finally:
                self._reports.put_nowait(None)
                self._ended.set_result(replace(ended, tail=self._output.tail, log=self._log))

    async def _end_what_is_left(self) -> None:
        ending = self._host.put_down(self._pid)
        with suppress(TimeoutError):  # a driver keeps it: it is given up, as any other
            async with asyncio.timeout(KILL_TIMEOUT_S):
                while any(map(is_there, ending)):
                    await asyncio.sleep(_POLL_S)

    async def _fetch(self, printed: asyncio.StreamReader) -> ProcessExit:
        """Until it ends. Raises what Ray says when the actor is lost."""
        while True:
            for piece in await self._host.actor.news.remote():
                match piece:
                    case bytes():
                        printed.feed_data(piece)
                    case ProcessExit():
                        return piece
                    case _:
                        self._reports.put_nowait(piece)
