"""How a rank that was launched comes to its group.

arrive(launch)   fetches what the group shares, or connects to it; the conductor is told
await_all        holds until the conductor says that all have arrived
join             meets the others, who are there
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from dataclasses import replace
from typing import Protocol

from cluster.errors import ConfigError
from kernels.cpu.native_sources import NativeUnavailable
from ranks.collectives.call_wait import CallWait
from ranks.collectives.group_collective import GroupCollective
from ranks.collectives.rendezvous import await_all, join, join_segment
from ranks.collectives.shared_memory import SharedMemoryCollective
from ranks.descriptors import fetch_descriptors
from ranks.launch import RankLaunch, SharedWay, TcpWay
from ranks.plans.native_calls import load_plans
from ranks.plans.over_zmq import ZmqPlanReader
from ranks.plans.plan import PlanReader
from ranks.plans.segment import PlanSegment
from ranks.plans.shared_memory import SharedPlanReader


class Arrival(Protocol):
    """A rank's ties to one generation, of one thread."""

    @property
    def plans(self) -> PlanReader:
        """Closed with this."""

    def await_all(self, timeout_s: float) -> None:
        """Others may have a model to fetch first. Raises RankLost."""

    def join(self, deadline_s: float) -> GroupCollective:
        """Once; closed with this. `deadline_s` is of each call. While this rank waits for others it
        beats. Raises as ranks.collectives.rendezvous.join."""

    def fail(self) -> None:
        """This rank cannot go on: nobody is to wait for it."""

    def close(self) -> None:
        """Leaves the group."""


def arrive(launch: RankLaunch) -> Arrival:
    """Raises RankLost, or ConfigError where native code is needed and cannot be had."""
    if isinstance(launch.way, SharedWay):
        return SharedArrival(launch, launch.way)
    return TcpArrival(launch, launch.way)


class SharedArrival:
    """An Arrival on the conductor's host, in shared memory."""

    def __init__(self, launch: RankLaunch, way: SharedWay) -> None:
        self._launch = launch
        self._collective: SharedMemoryCollective | None = None
        with contextlib.ExitStack() as closers:
            meeting, plans = fetch_descriptors(way.descriptors_path, 2)
            closers.callback(os.close, meeting)
            self._rendezvous = replace(launch.rendezvous, segment_fd=meeting)
            segment = PlanSegment.attach(
                plans, world_size=launch.world_size, generation=launch.generation
            )
            closers.callback(segment.close)
            self._beat_address = segment.beat_address(launch.rank)
            self.plans = SharedPlanReader(segment, launch.rank, _library_of(launch))
            self._closers = closers.pop_all()

    def await_all(self, timeout_s: float) -> None:
        """See Arrival: nobody waits for others before the first call."""

    def join(self, deadline_s: float) -> GroupCollective:
        """See Arrival."""
        own = join_segment(self._rendezvous, self._launch.rank, deadline_s=deadline_s)
        self._closers.callback(own.close)
        own.beat_at(self._beat_address)
        self._collective = own
        return own

    def fail(self) -> None:
        """See Arrival."""
        if self._collective is not None:
            self._collective.give_up()

    def close(self) -> None:
        """See Arrival."""
        self._closers.close()


class TcpArrival:
    """An Arrival over TCP."""

    def __init__(self, launch: RankLaunch, way: TcpWay) -> None:
        self._launch = launch
        self.plans = ZmqPlanReader(
            way.plans_address,
            way.beats_address,
            launch.rank,
            generation=launch.generation,
            keys=launch.keys,
        )
        self._closers = contextlib.ExitStack()
        self._closers.callback(self.plans.close)

    def await_all(self, timeout_s: float) -> None:
        """See Arrival."""
        await_all(self._launch.rendezvous, timeout_s=timeout_s)

    def join(self, deadline_s: float) -> GroupCollective:
        """See Arrival."""
        own = join(self._launch.rendezvous, self._launch.rank, deadline_s=deadline_s)
        self._closers.callback(own.close)
        self.plans.lives_while(CallWait(own, limit_s=deadline_s))
        return own

    def fail(self) -> None:
        """See Arrival: its connections end with its process."""

    def close(self) -> None:
        """See Arrival."""
        self._closers.close()


def _library_of(launch: RankLaunch) -> ctypes.CDLL:
    try:
        return load_plans()
    except NativeUnavailable as reason:
        raise ConfigError(
            f"rank {launch.rank} cannot read plans in shared memory: {reason}"
        ) from reason
