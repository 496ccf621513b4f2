"""The actor: it holds its place in the cluster, and may run one process there as its child.

    facts    where it is, and which devices it was given
    start    once: a process of ours, in a session of its own, with its parent's death watched
    news     waits for what the process prints, reports, and at last for its end
             asked no more: the process ends with its lease, and the actor as well
    stop     asks the process to finish, or kills it and all it started

A child and not the actor's own process: an actor that dies says neither an exit code nor a signal
nor its last lines, its standard error is Ray's, its threads and environment are set up by Ray; and
a process is the same one wherever it is started. It costs the memory of one idle Python.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping

from cluster.launcher.local import LocalProcess, start_process
from cluster.launcher.protocol import ProcessExit, ProcessSpec
from cluster.launcher.ray.lease import ASKED_EVERY_S, NewsLease
from cluster.launcher.ray.library import ray_library
from cluster.launcher.ray.machine import HostFacts, own_facts
from cluster.launcher.ray.outbox import HostedNews, Outbox
from cluster.options import without_options
from cluster.process.background import Background, nothing_needed
from cluster.process.priority import step_up_to_parent

GATHER_S = 0.02
"""From the first piece of news on others are waited for: each fetch is a call of an actor."""
_OF_THE_ACTOR = ("RAY_", "OMP_NUM_THREADS", "PYTHONBREAKPOINT")
"""Ray sets them for its own worker; a process of ours may be a driver, and asks for its threads."""
_OF_THE_CLUSTER = ("RAY_AUTH_", "RAY_TLS_", "RAY_USE_TLS")
"""Without these nobody is let in."""


class HostedProcess:
    """Its methods run on the event loop of the actor, whose thread lives as long as the actor."""

    def __init__(
        self, lease: NewsLease | None = None, end_of_actor: Callable[[], None] = lambda: os._exit(1)
    ) -> None:
        self._lease = lease or NewsLease()
        self._end_of_actor = end_of_actor
        self._process: LocalProcess | None = None
        self._outbox = Outbox()
        self._background = Background(nothing_needed)

    async def facts(self) -> HostFacts:
        """Answered once the actor runs, at its raylet's priority where it may: workers of Ray step
        back for everything else on their node, and a rank would hold up its group."""
        step_up_to_parent()
        return own_facts(ray_library())

    async def start(self, spec: ProcessSpec, environ: Mapping[str, str]) -> int:
        """The pid. `environ` is the starter's: this node's own values win over it, and the spec's
        over both. Raises ConfigError when the program cannot be started."""
        assert self._process is None, "an actor hosts one process"
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
        own = {name: value for name, value in os.environ.items() if not _is_the_actors(name)}
        self._process = start_process(spec, {**environ, **without_options(own)}, self._outbox)
        self._background.once(f"news of {spec.name}", self._tell(self._process))
        self._background.once(f"lease of {spec.name}", self._end_with_lease(self._process))
        return self._process.pid

    async def news(self) -> list[HostedNews]:
        """All there is, in order, once there is some, or nothing after ASKED_EVERY_S; nothing comes
        after a ProcessExit. Renews the lease."""
        self._lease.renew()
        try:
            async with asyncio.timeout(ASKED_EVERY_S):
                found = await self._outbox.take()
        except TimeoutError:
            return []
        if not isinstance(found[-1], ProcessExit):
            await asyncio.sleep(GATHER_S)
            found += self._outbox.take_rest()
        return found

    async def stop(self, at_once: bool) -> None:
        """See ProcessHandle. Idempotent."""
        if self._process is not None:
            self._process.stop(at_once=at_once)

    async def _tell(self, process: LocalProcess) -> None:
        """An actor that cannot tell any more ends, and its process with it: its starter would wait
        for ever."""
        try:
            async for report in process.reports():
                self._outbox.put(report)
            self._outbox.put(await process.wait())
        except Exception:
            process.stop(at_once=True)
            self._end_of_actor()
            raise

    async def _end_with_lease(self, process: LocalProcess) -> None:
        self._lease.renew()
        await self._lease.run_out()
        process.stop(at_once=True)
        await process.wait()
        self._end_of_actor()


def _is_the_actors(name: str) -> bool:
    return name.startswith(_OF_THE_ACTOR) and not name.startswith(_OF_THE_CLUSTER)
