"""Actors that host processes: begun together, asked where they are, ended together.

They are named, so that `ray list actors` shows whose they are; they are owned, so that they end
with whoever began them; they are never restarted: whoever began them knows what to start anew.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cluster.errors import ConfigError
from cluster.launcher.ray.bundles import Resources
from cluster.launcher.ray.hosted_process import HostedProcess
from cluster.launcher.ray.library import RayHandle
from cluster.launcher.ray.machine import (
    HostFacts,
    birth_of,
    parent_of,
    this_machine,
)
from cluster.launcher.ray.placing import PlacedGroup
from cluster.launcher.ray.session import RaySession
from cluster.logs import get_logger
from cluster.options import without_options
from cluster.process.signs_of_life import SignsOfLife

START_TIMEOUT_S = 60.0
"""For an actor that has its room: a Python that imports Ray."""
_SHARED = (
    *("SPLITSERVE_", "HF_", "UCX_", "NIXL_", "NCCL_", "GLOO_", "TORCH_", "TRITON_", "MALLOC_"),
    *("OMP_", "MKL_", "KMP_", "PYTORCH_", "THP_"),
)
"""Variables of ours that go with a process to another node, which may have its own."""
_log = get_logger("ray")


@dataclass(frozen=True, slots=True)
class ActorPlace:
    """Where an actor is to be: in a bundle, or on a node, where it takes nothing."""

    group: PlacedGroup | None = None
    bundle: int = 0
    node_id: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """An actor that runs."""

    actor: RayHandle
    facts: HostFacts

    @property
    def is_on_this_machine(self) -> bool:
        """True where its processes can be signalled from here."""
        return self.facts.machine == this_machine()

    def in_words(self, loss: Exception) -> str:
        """What Ray says of an actor that is lost, and where it was."""
        facts = self.facts
        lines = [line.strip() for line in str(loss).splitlines() if line.strip()]
        return (
            f"Ray has lost its actor on {facts.host_name} ({facts.address}, node "
            f"{facts.node_id[:8]}): {lines[0] if lines else type(loss).__name__}"
        )

    def kill_process(self, pid: int) -> None:
        """The process that it hosts, with its group, now: also where the actor itself was stopped.
        Of a machine that is not ours the actor is asked, and ends with it, if it can."""
        if self.is_on_this_machine:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self.actor.stop.remote(True)

    def end(self, session: RaySession) -> None:
        """The actor; the kernel ends with it what it hosts. Idempotent, does not wait."""
        if self._is_to_be_seen and is_stopped(self.facts.pid):
            self._kill_actor()  # Ray would wait for five seconds
        session.ray.kill(self.actor, no_restart=True)

    def put_down(self, pid: int) -> list[int]:
        """The process, its group and the actor, by the kernel: a raylet that has died ended none of
        them. Those that now end; none on another machine, where they do within LEASE_S. Idempotent.
        """
        if not self._is_to_be_seen:
            return []
        ending = [self.facts.pid]
        if parent_of(pid) == self.facts.pid:  # and by now nobody else's pid
            ending.append(pid)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._kill_actor()
        return ending

    @property
    def _is_to_be_seen(self) -> bool:
        """An actor of this machine, and not another process that has its pid by now."""
        return self.is_on_this_machine and birth_of(self.facts.pid) == self.facts.born

    def _kill_actor(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.facts.pid, signal.SIGKILL)


def begin_hosts(
    session: RaySession,
    places: Mapping[str, ActorPlace],
    *,
    timeout_s: float = START_TIMEOUT_S,
) -> list[Host]:
    """One actor for each name, once all run. Raises ConfigError, and leaves none."""
    actors: list[RayHandle] = []
    try:
        for name, place in places.items():
            actors.append(_begun(session, name, place))
        facts = session.ray.get([actor.facts.remote() for actor in actors], timeout=timeout_s)
    except (session.ray.exceptions.RayError, ValueError) as cause:  # a name that another has
        for actor in actors:
            session.ray.kill(actor, no_restart=True)
        raise ConfigError(_not_begun(list(places), timeout_s, cause)) from cause
    _tell_who_steps_back(facts)
    return [Host(actor, fact) for actor, fact in zip(actors, facts, strict=True)]


def is_stopped(pid: int) -> bool:
    """By SIGSTOP, or by a debugger; of a process of this machine."""
    signs = SignsOfLife.of_main_thread(pid)
    return signs is not None and signs.is_stopped


def _tell_who_steps_back(facts: Sequence[HostFacts]) -> None:
    nodes = {fact.address: fact.niceness for fact in facts if fact.niceness > 0}
    if nodes:
        _log.warning(
            "busy cores serve all other processes of these nodes first; start their raylets with "
            "RAY_worker_niceness=0",
            niceness=nodes,
        )


def environ_to_share() -> dict[str, str]:
    """What of this process's environment a process of ours is given on another node."""
    kept = without_options(os.environ)
    return {name: value for name, value in kept.items() if name.startswith(_SHARED)}


def _begun(session: RaySession, name: str, place: ActorPlace) -> RayHandle:
    strategies = session.ray.util.scheduling_strategies
    if place.group is None:
        resources: Resources = {}
        strategy = strategies.NodeAffinitySchedulingStrategy(place.node_id, soft=False)
    else:
        resources = place.group.bundles[place.bundle]
        strategy = strategies.PlacementGroupSchedulingStrategy(place.group.handle, place.bundle)
    named = {key: amount for key, amount in resources.items() if key not in ("CPU", "GPU")}
    options = {
        "name": name,
        "max_restarts": 0,
        "num_cpus": resources.get("CPU", 0),
        "num_gpus": resources.get("GPU", 0),
        "resources": named,
        "scheduling_strategy": strategy,
    }
    return session.ray.remote(HostedProcess).options(**options).remote()


def _not_begun(names: Sequence[str], timeout_s: float, cause: Exception) -> str:
    return (
        f"Ray's actors {', '.join(names)} did not begin within {timeout_s:g} s: "
        f"{str(cause).partition(chr(10))[0]}; on every node splitserve and Ray must be installed "
        "as they are here"
    )
