"""Where a fleet is to run: on this machine, or on the nodes of a Ray cluster.

    local   processes here, as many cores and GPUs as they share
    ray     a cluster that is there, or a Ray of our own; the router beside the supervisor, workers
            wherever there is room, on this address alone or on several

How workers and the router reach each other there: worker_reach.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from cluster.config import ServeOptions
from cluster.deadline import Deadline, Sleep
from cluster.errors import ConfigError
from cluster.launcher.local import LocalLauncher, OnProcessWarning
from cluster.launcher.protocol import Launcher
from cluster.launcher.ray.bundles import NodeRoom, Resources, bundle_of_a_rank
from cluster.launcher.ray.launcher import RayLauncher
from cluster.launcher.ray.placing import check_free, check_size
from cluster.launcher.ray.session import RaySession
from cluster.process.free_memory import free_memory_share
from cluster.process.own_cores import available_cores
from cluster.process.thread_call import in_thread
from cluster.supervisor.devices import visible_gpus
from cluster.supervisor.fleet import Machine, num_ranks_of_all
from cluster.supervisor.worker_reach import check_reached

MAX_RANKS_OF_OUR_OWN = 4096
"""On CPUs. A Ray of our own places them; how many this machine holds is no matter of Ray's."""
ROOM_PATIENCE_S = 1.5
"""An operator's order is to be answered in five seconds."""
_LOOK_EVERY_S = 0.1


class MakeLauncher(Protocol):
    """Called once, by whoever watches the processes."""

    def __call__(self, *, log_dir: Path | None, on_warning: OnProcessWarning) -> Launcher:
        """`log_dir`, if any, is to hold one NAME.log per process."""


class CheckRoom(Protocol):
    """Asked before a fleet that runs gets larger; the workers are launched later, or never."""

    async def __call__(self, num_ranks: int) -> None:
        """Raises ConfigError where so many more have no room, within a few seconds."""


async def there_is_room(num_ranks: int) -> None:
    """On this machine: memory is judged by each worker as it starts."""


@dataclasses.dataclass(frozen=True, slots=True)
class FleetPlace:
    """What a fleet is planned for, and started with."""

    options: ServeOptions
    """With what its workers have to know of the place."""
    machine: Machine
    make_launcher: MakeLauncher
    check_room: CheckRoom = there_is_room


@contextmanager
def place_of(options: ServeOptions) -> Iterator[FleetPlace]:
    """For as long as the fleet runs; at the end nothing that it held is left. From the main thread.

    Raises ConfigError when there is no such place.
    """
    if options.launcher == "ray":
        with _on_ray(options) as place:
            yield place
        return
    machine = Machine(available_cores(), visible_gpus(os.environ), free_memory_share())
    yield FleetPlace(options, machine, LocalLauncher)


@contextmanager
def _on_ray(options: ServeOptions) -> Iterator[FleetPlace]:
    num_ranks = num_ranks_of_all(options)
    session = RaySession.open(
        options.engine.ray_address, num_ranks=max(num_ranks, MAX_RANKS_OF_OUR_OWN)
    )
    launchers: list[RayLauncher] = []

    def make_launcher(*, log_dir: Path | None, on_warning: OnProcessWarning) -> RayLauncher:
        launchers.append(
            RayLauncher(session, uses_gpus=bool(gpus), log_dir=log_dir, on_warning=on_warning)
        )
        return launchers[-1]

    try:
        gpus = _gpus_of(session) if options.engine.device != "cpu" else ()
        bundle = bundle_of_a_rank(session.nodes(), uses_gpus=bool(gpus))
        check_size(session, [bundle] * num_ranks)
        nodes = session.nodes()
        check_nodes(options, nodes)
        own = None if session.started_ray else nodes[0].address
        machine = Machine(available_cores(), gpus, free_memory_share(), own)
        engine = dataclasses.replace(
            options.engine, rank_launcher="ray", ray_address=session.address
        )
        yield FleetPlace(
            dataclasses.replace(options, engine=engine),
            machine,
            make_launcher,
            lambda more: _check_room(session, bundle, more),
        )
    finally:
        for launcher in launchers:
            launcher.close()
        session.close()


async def _check_room(
    session: RaySession, bundle: Resources, num_ranks: int, *, sleep: Sleep = asyncio.sleep
) -> None:
    """Who has just left gives its room back within a second or two."""
    look = partial(check_free, session, [bundle] * num_ranks)
    deadline = Deadline.after(ROOM_PATIENCE_S)
    while True:
        try:
            async with asyncio.timeout(ROOM_PATIENCE_S):
                return await in_thread("room in Ray", look)
        except ConfigError:
            if deadline.has_passed:
                raise
        except (TimeoutError, session.ray.exceptions.RayError) as cause:
            raise ConfigError(
                f"Ray does not say what room it has: {cause or 'no answer'}", param="ray_address"
            ) from cause
        await sleep(_LOOK_EVERY_S)


def _gpus_of(session: RaySession) -> tuple[str, ...]:
    """One name for each that the cluster has; which of them a worker gets is Ray's choice."""
    num_gpus = sum(int(node.total.get("GPU", 0)) for node in session.nodes())
    return tuple(f"GPU-{index}" for index in range(num_gpus))


def check_nodes(options: ServeOptions, nodes: Sequence[NodeRoom]) -> None:
    """Of a cluster; our own is the first. Raises ConfigError where workers on others would not
    reach the router: nodes that come later are judged when a worker is launched there."""
    own, *others = nodes
    strangers = sorted({node.address for node in others} - {own.address})
    if strangers:
        check_reached(options, strangers)
