"""How a rank that was launched comes to its group.

arrive(launch)   fetches what the group shares, or connects to it; the conductor is told
await_all        holds until the conductor says that all have arrived
join             meets the others, who are there
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

from cluster.errors import ConfigError
from kernels.cpu.native_sources import NativeUnavailable
from ranks.collectives.call_wait import CallWait
from ranks.collectives.group_collective import GroupCollective
from ranks.collectives.rendezvous import await_all, join
from ranks.collectives.shared_memory import SharedMemoryCollective
from ranks.descriptors import fetch_descriptors
from ranks.launch import RankLaunch
from ranks.plans.native_calls import load_plans
from ranks.plans.over_zmq import ZmqPlanReader
from ranks.plans.plan import PlanReader
from ranks.plans.segment import PlanSegment
from ranks.plans.shared_memory import SharedPlanReader


class Arrival:
    """A rank's ties to one generation, of one thread."""

    def __init__(self, launch: RankLaunch, libraries: Path) -> None:
        """`libraries`: where native code is built. Raises RankLost, or ConfigError without it."""
        self._launch, self._libraries = launch, libraries
        self._rendezvous = launch.rendezvous
        self._closers = contextlib.ExitStack()
        self._beat_address: int | None = None
        self._shared: SharedMemoryCollective | None = None
        self.plans: PlanReader = self._fetch_ring() if launch.descriptors_path else self._connect()
        self._closers.callback(self.plans.close)

    def await_all(self, timeout_s: float) -> None:
        """Others may have a model to fetch first. Raises RankLost."""
        await_all(self._rendezvous, timeout_s=timeout_s)

    def join(self, deadline_s: float) -> GroupCollective:
        """`deadline_s` is of each call. While this rank waits for others it beats."""
        collective = join(
            self._rendezvous, self._launch.rank, self._libraries, deadline_s=deadline_s
        )
        self._closers.callback(collective.close)
        if isinstance(collective, SharedMemoryCollective) and self._beat_address is not None:
            collective.beat_at(self._beat_address)
            self._shared = collective
        if isinstance(self.plans, ZmqPlanReader):
            self.plans.lives_while(CallWait(collective))
        return collective

    def fail(self) -> None:
        """This rank cannot go on: nobody is to wait for it. Over TCP its connection ends."""
        if self._shared is not None:
            self._shared.give_up()

    def close(self) -> None:
        """Leaves the group."""
        self._closers.close()

    def _fetch_ring(self) -> SharedPlanReader:
        launch = self._launch
        meeting, plans = fetch_descriptors(launch.descriptors_path, 2)
        self._closers.callback(os.close, meeting)
        self._rendezvous = replace(self._rendezvous, segment_fd=meeting)
        segment = PlanSegment.attach(
            plans, world_size=launch.world_size, generation=launch.generation
        )
        self._beat_address = segment.beat_address(launch.rank)
        try:
            library = load_plans(self._libraries)
        except NativeUnavailable as reason:
            raise ConfigError(
                f"rank {launch.rank} cannot read plans in shared memory: {reason}"
            ) from reason
        return SharedPlanReader(segment, launch.rank, library)

    def _connect(self) -> ZmqPlanReader:
        launch = self._launch
        return ZmqPlanReader(
            launch.plans_address,
            launch.beats_address,
            launch.rank,
            generation=launch.generation,
            keys=launch.keys,
        )
