"""The conductor of a local fleet: starts in stages, restarts what dies, stops in reverse.

await supervisor.start(stages)     each stage at once, after the one before is ready
await supervisor.grow(spec)        one worker more, and
await supervisor.shrink(name, ...) one that ends its requests and goes
await supervisor.stop(grace_s)     the first stage finishes its requests, then the others end
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from cluster.deadline import Clock, Sleep
from cluster.launcher.protocol import Launcher, ProcessSpec
from cluster.process.background import Background, Loss, cancel
from cluster.process.backoff import Backoff
from cluster.supervisor.child import Child
from cluster.supervisor.news import News, Stopping, Watcher


class Supervisor:
    """Owns every child. All calls from one event loop; `kill` also from a signal handler of it."""

    def __init__(
        self,
        launcher: Launcher,
        watcher: Watcher,
        *,
        backoff: Callable[[], Backoff] = Backoff,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._launcher = launcher
        self._told = watcher
        self._backoff = backoff
        self._clock = clock
        self._sleep = sleep
        self._stages: list[list[Child]] = []
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._background = Background(self._on_loss)
        self.lost = asyncio.Event()
        """Set when a process is not kept alive any more, and the fleet has to end: a bug, unless it
        is the launcher's place that is lost."""
        self.loss: Loss | None = None

    @property
    def children(self) -> list[Child]:
        """In the order of their start."""
        return [child for stage in self._stages for child in stage]

    async def start(self, stages: Sequence[Sequence[ProcessSpec]]) -> None:
        """Returns when all take requests. Raises the first StartFailed; call `stop` in any case."""
        self._background.need("the place of the fleet", self._launcher.until_lost())
        for stage in stages:
            children = [self._child(spec) for spec in stage]
            self._stages.append(children)
            await _all_or_first_failure([self._start(child) for child in children])

    def _child(self, spec: ProcessSpec) -> Child:
        backoff = self._backoff()
        return Child(
            spec, self._launcher, self._tell, backoff, clock=self._clock, sleep=self._sleep
        )

    async def grow(self, spec: ProcessSpec) -> None:
        """One process more in the last stage, once the fleet has started. Returns when it takes
        requests. Nothing is left of one that fails. Raises StartFailed, and what is a bug."""
        child = self._child(spec)
        self._stages[-1].append(child)
        try:
            await self._start(child)
        except Exception:
            child.kill()
            self._stages[-1].remove(child)
            raise

    async def shrink(self, name: str, grace_s: float) -> None:
        """Returns once that process has finished its requests and ended; it is not started again.
        See Child.stop for `grace_s`."""
        for stage in self._stages:
            for child in [each for each in stage if each.spec.name == name]:
                await child.stop(grace_s)
                if (keeping := self._keeping.pop(name, None)) is not None:
                    await cancel([keeping])
                stage.remove(child)

    async def stop(self, grace_s: float) -> None:
        """The router first, so that it finishes its requests while the workers still serve."""
        for stage in self._stages:
            running = tuple(child.spec.name for child in stage if child.pid is not None)
            self._tell(Stopping(running, grace_s))
            await asyncio.gather(*(child.stop(grace_s) for child in stage))
        await self._background.close()

    def kill(self) -> None:
        """Ends every process now; `stop` then returns at once."""
        for child in self.children:
            child.kill()

    def end(self, name: str, why: str) -> None:
        """Ends a process that is of no use; it is started again."""
        for child in self.children:
            if child.spec.name == name:
                child.end(why)

    async def _start(self, child: Child) -> None:
        await child.start()
        name = child.spec.name
        self._keeping[name] = self._background.need(name, self._keep(child))

    async def _keep(self, child: Child) -> None:
        await child.keep_alive()
        await asyncio.Event().wait()  # it was told to stop: `stop` ends this, too

    def _tell(self, news: News) -> None:
        """A terminal that is gone must not take the processes with it."""
        with suppress(OSError, ValueError):
            self._told(news)

    def _on_loss(self, loss: Loss) -> None:
        self.loss = self.loss or loss
        self.lost.set()


async def _all_or_first_failure(starts: Sequence[Coroutine[Any, Any, None]]) -> None:
    tasks = [asyncio.create_task(start) for start in starts]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)
