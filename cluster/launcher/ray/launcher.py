"""A Launcher whose processes are on the nodes of a Ray cluster.

    no ranks (a router)    an actor on this node, which takes nothing: others have its address
    ranks                  a placement group, one bundle for each; the process is in the first, and
                           finds the others by the group's name

Every start looks for room anew: a process whose node is lost comes back on another.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from secrets import token_hex

from cluster.errors import ConfigError
from cluster.launcher.local import OnProcessWarning
from cluster.launcher.output import ChildOutput
from cluster.launcher.protocol import VISIBLE_DEVICES, NodeFacts, ProcessSpec
from cluster.launcher.ray.bundles import bundle_of_a_rank
from cluster.launcher.ray.head_watch import watch_head
from cluster.launcher.ray.holdings import PATIENCE_S, Holdings
from cluster.launcher.ray.hosting import (
    START_TIMEOUT_S,
    ActorPlace,
    Host,
    begin_hosts,
    environ_to_share,
)
from cluster.launcher.ray.own_group import PLACEMENT_GROUP
from cluster.launcher.ray.placing import place_group
from cluster.launcher.ray.remote_process import RemoteProcess
from cluster.launcher.ray.session import RaySession
from cluster.process.own_lateness import SeenTimeout
from cluster.process.thread_call import in_thread


class RayLauncher:
    """Owns its actors and placement groups; `close` once all processes have ended."""

    def __init__(
        self,
        session: RaySession,
        *,
        uses_gpus: bool,
        log_dir: Path | None,
        on_warning: OnProcessWarning,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`uses_gpus`: a rank takes a GPU, and not a place on a CPU. `patience_s`: with a Ray that
        does not take back what it gave."""
        self._session = session
        self._uses_gpus = uses_gpus
        self._log_dir = log_dir
        self._on_warning = on_warning
        self._mark = token_hex(4)  # other fleets of the cluster have the same names of processes
        self._starts = count(1)
        self._holdings = Holdings(session, patience_s=patience_s)
        self._nodes: dict[str, NodeFacts] = {}
        """By machine, as first seen; several nodes of Ray may be one."""

    async def launch(self, spec: ProcessSpec) -> RemoteProcess:
        """See Launcher. Raises ConfigError also where the cluster has no room for its ranks."""
        start = f"{spec.name}-{self._mark}-{next(self._starts)}"
        self._holdings.open(start)
        try:
            host = await in_thread("placement", partial(self._hosted, spec, start))
            return await self._launched(spec, start, host)
        except BaseException:
            await self._holdings.give_back(start)
            raise

    async def until_lost(self) -> None:
        """See Launcher."""
        await watch_head(self._session.ask_head)

    def close(self) -> None:
        """Gives back what is still held."""
        self._holdings.close()

    def _hosted(self, spec: ProcessSpec, start: str) -> Host:
        """In a thread: Ray answers within seconds. One that was left gives back what it got."""
        place = ActorPlace(node_id=self._session.node_id)
        if spec.ranks:
            bundle = bundle_of_a_rank(self._session.nodes(), uses_gpus=self._uses_gpus)
            group = place_group(self._session, start, [bundle] * spec.ranks)
            self._holdings.keep_group(start, group)
            place = ActorPlace(group=group)
        (host,) = begin_hosts(self._session, {start: place})
        self._holdings.keep_host(start, host)
        return host

    def _node_of(self, host: Host) -> NodeFacts:
        """As it was before anything of this fleet was there: one that is started again beside
        others has the same share as before."""
        node = host.facts.node
        return replace(
            self._nodes.setdefault(host.facts.machine, node),
            address=node.address,
            free_memory_share_now=node.free_memory_share_now,
        )

    async def _launched(self, spec: ProcessSpec, start: str, host: Host) -> RemoteProcess:
        environ = dict(spec.environ)
        if spec.ranks:
            environ |= {PLACEMENT_GROUP: start, VISIBLE_DEVICES: ",".join(host.facts.gpus)}
        argv = spec.argv if spec.argv_at is None else spec.argv_at(self._node_of(host))
        hosted = ProcessSpec(name=spec.name, argv=argv, environ=environ, stdin=spec.stdin)
        try:
            async with SeenTimeout(START_TIMEOUT_S, time.monotonic):
                pid = await host.actor.start.remote(hosted, environ_to_share())
        except (TimeoutError, self._session.ray.exceptions.RayError) as cause:
            why = str(cause) or f"its actor did not answer within {START_TIMEOUT_S:g} s"
            raise ConfigError(f"{spec.name} cannot be started: {why}") from cause
        log = None if self._log_dir is None else self._log_dir / f"{spec.name}.log"
        output = ChildOutput(log, lambda level, text: self._on_warning(spec.name, level, text))
        return RemoteProcess(
            host,
            pid,
            output,
            log=str(log or ""),
            on_end=partial(self._holdings.give_back, start),
        )
