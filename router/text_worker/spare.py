"""A text process that is loaded and has nothing to do yet, for the lane that loses its own.

refill -> started -> waits, watched -> taken: the next `refill` starts another
                         '- it ends, or is stopped: `run` raises, and is run again

Without it the next chat would wait for the start of a process, one to two seconds.
"""

from __future__ import annotations

import asyncio

from cluster.errors import InternalError
from cluster.process.background import until_one_ends
from cluster.process.signs_of_life import SignsOfLife
from router.text_worker.messages import Setup
from router.text_worker.text_process import TextProcess
from router.text_worker.vital_signs import kill_when_silent


class SpareProcess:
    """One for all lanes. All calls from the event loop; `run` it again whenever it ends."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._process: TextProcess | None = None
        self._is_wanted = asyncio.Event()
        self._is_taken = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Of the one that waits; None while there is none."""
        return None if self._process is None else self._process.pid

    def refill(self) -> None:
        """From now on there should be one: a lane is served, and a start takes nothing from it."""
        self._is_wanted.set()

    def take(self) -> TextProcess | None:
        """The caller ends it. None when there is none yet, or it is stopped or gone."""
        if self._process is None or not _is_well(self._process):
            return None
        process, self._process = self._process, None
        self._is_wanted.clear()
        self._is_taken.set()
        return process

    async def run(self) -> None:
        """Raises what kept a process from starting, and InternalError when one ended unasked."""
        while True:
            await self._is_wanted.wait()
            self._is_taken.clear()
            process = self._process = await TextProcess.start(self._setup)
            try:
                await until_one_ends(self._is_taken.wait(), _end_of(process), _watch(process))
            finally:
                if self._process is process:
                    self._process = None
                    await process.end()


async def _end_of(process: TextProcess) -> None:
    raise InternalError(f"the spare text worker ended with {await process.wait_for_end()}")


async def _watch(process: TextProcess) -> None:
    await kill_when_silent(process.pid, lambda: False, process.kill)


def _is_well(process: TextProcess) -> bool:
    signs = SignsOfLife.of(process.pid)  # None also where the kernel does not tell
    return not process.has_ended and not (signs is not None and signs.is_stopped)
