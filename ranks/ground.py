"""What the ranks of one generation meet in: opened by the conductor before it starts them.

    open -> launches, one for each rank -> let_in, while they arrive -> settled -> close

In shared memory for ranks of one host, with sockets in a folder; over TCP for others.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from cluster.errors import ConfigError
from cluster.process.socket_path import socket_path
from kernels.cpu.native_sources import NativeUnavailable
from ranks.channels import Channels
from ranks.collectives.rendezvous import CollectiveKind, MeetingPlace
from ranks.collectives.segment import SharedSegment
from ranks.descriptors import DescriptorDoor
from ranks.launch import CONDUCTOR, RankLaunch, SharedWay, TcpWay
from ranks.plans.native_calls import load_plans
from ranks.plans.over_zmq import ZmqPlanWriter
from ranks.plans.plan import PlanWriter, RankSign
from ranks.plans.segment import PlanSegment
from ranks.plans.shared_memory import SharedPlanWriter
from ranks.reports import ReportInbox
from ranks.spawner import RankPlaces


class GroundWay(Protocol):
    """How plans reach the ranks, and the ranks the plans."""

    @property
    def told(self) -> SharedWay | TcpWay:
        """For the launches."""

    @property
    def plans(self) -> PlanWriter:
        """Closed with this."""

    def let_in(self) -> None:
        """Gives a rank that arrives what it asks for; waits for nobody."""

    def is_settled(self) -> bool:
        """True once plans reach every rank that has arrived; waits a little."""

    def close(self) -> None:
        """Idempotent."""


class Ground:
    """One generation's, of the conductor's one thread; `sign_of`, `let_in` and `give_up` are its
    watch's, of another."""

    def __init__(self, kind: CollectiveKind, places: RankPlaces, sockets: Path) -> None:
        """`sockets`: a folder of this user's alone. Raises OSError where the system does not give
        what is needed, NativeUnavailable where `kind` was not asked for first."""
        self.generation = time.time_ns() // 1_000_000
        self.places, self._size = places, len(places.nodes)
        with contextlib.ExitStack() as closers:
            self.meeting = MeetingPlace.open(
                kind, self._size, self.generation, address=places.address
            )
            closers.callback(self.meeting.close)
            self._channels = Channels(sockets if places.is_one_host else places.address)
            closers.callback(self._channels.close)
            self.inbox = ReportInbox(
                self._channels, world_size=self._size, generation=self.generation
            )
            closers.callback(self.inbox.close)
            self._way = self._open_way(sockets)
            closers.callback(self._way.close)
            self._closers = closers.pop_all()

    def launches(self, spec: bytes, free_bytes: int | None) -> list[RankLaunch]:
        """Of all ranks, the conductor's first; `spec` is the engine's, `free_bytes` as in
        RankLaunch."""
        return [self._launch(rank, spec, free_bytes) for rank in range(self._size)]

    @property
    def is_shared(self) -> bool:
        """The ranks meet in shared memory: nobody waits for others before the first call."""
        return self.meeting.segment is not None

    @property
    def plans(self) -> PlanWriter:
        """To all ranks."""
        return self._way.plans

    @property
    def far_ranks(self) -> tuple[int, ...]:
        """See RankPlaces."""
        return self.places.far_ranks

    def sign_of(self, rank: int) -> RankSign:
        """What it shows now."""
        return self.plans.sign_of(rank)

    def give_up(self, rank: int) -> None:
        """The group is over: whoever waits, here or at a rank, waits no more."""
        self.plans.give_up()
        self.meeting.give_up(rank)

    def let_in(self) -> None:
        """See GroundWay."""
        self._way.let_in()

    def is_settled(self) -> bool:
        """See GroundWay."""
        return self._way.is_settled()

    def close(self) -> None:
        """The ranks may still be there: what they have mapped is theirs. Idempotent."""
        self._closers.close()

    def _open_way(self, sockets: Path) -> GroundWay:
        if self.meeting.segment is not None:
            return RingInMemory(self.meeting.segment, socket_path(sockets, "door"))
        return Connections(self._channels, self._size, self.generation)

    def _launch(self, rank: int, spec: bytes, free_bytes: int | None) -> RankLaunch:
        return RankLaunch(
            spec=spec,
            rank=rank,
            world_size=self._size,
            generation=self.generation,
            node=self.places.nodes[rank],
            rendezvous=replace(self.meeting.rendezvous, segment_fd=None),
            reports_address=self.inbox.address,
            way=self._way.told,
            is_beside_conductor=rank in self.places.ranks_beside(CONDUCTOR),
            num_beside=len(self.places.ranks_beside(rank)),
            free_bytes=free_bytes,
            keys=self._channels.keys,
        )


class RingInMemory:
    """A GroundWay: a ring of plans, behind a door at which ranks get descriptors of all that the
    group shares."""

    def __init__(self, meeting: SharedSegment, door: Path) -> None:
        """`meeting` stays the caller's. `door` is a path that is free."""
        self.told, self._path = SharedWay(str(door)), door
        library = _library()
        segment = PlanSegment.create(meeting.world_size, meeting.generation)
        self.plans = SharedPlanWriter(segment, library)
        try:
            self._door = DescriptorDoor(door, (meeting.fd, segment.fd))
        except BaseException:
            self.plans.close()
            raise

    def let_in(self) -> None:
        """See GroundWay."""
        self._door.serve()

    def is_settled(self) -> bool:
        """See GroundWay: they come by themselves."""
        return True

    def close(self) -> None:
        """See GroundWay."""
        self._door.close()
        self._path.unlink(missing_ok=True)
        self.plans.close()


class Connections:
    """A GroundWay: one to each rank."""

    def __init__(self, channels: Channels, world_size: int, generation: int) -> None:
        self.plans = ZmqPlanWriter(channels, world_size=world_size, generation=generation)
        self.told = TcpWay(self.plans.address, self.plans.beats.address)

    def let_in(self) -> None:
        """See GroundWay: they come by themselves."""

    def is_settled(self) -> bool:
        """See GroundWay."""
        return self.plans.await_ranks(0.05)

    def close(self) -> None:
        """See GroundWay."""
        self.plans.close()


def _library() -> ctypes.CDLL:
    try:
        return load_plans()
    except NativeUnavailable as reason:
        raise ConfigError(f"plans cannot be written in shared memory: {reason}") from reason
