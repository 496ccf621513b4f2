"""What the ranks of one generation meet in: opened by the conductor before it starts them.

    open -> launches, one for each rank -> let_in, while they arrive -> settled -> close

In shared memory for ranks of one host, with sockets in a folder; over TCP for others.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.process.socket_path import socket_path
from ranks.channels import Channels
from ranks.collectives.rendezvous import CollectiveKind, MeetingPlace
from ranks.descriptors import DescriptorDoor
from ranks.launch import CONDUCTOR, RankLaunch
from ranks.plans.native_calls import load_plans
from ranks.plans.over_zmq import ZmqPlanWriter
from ranks.plans.plan import PlanWriter, RankSign
from ranks.plans.segment import PlanSegment
from ranks.plans.shared_memory import SharedPlanWriter
from ranks.reports import ReportInbox
from ranks.spawner import RankPlaces


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundPlan:
    """Where, and by what."""

    places: RankPlaces
    kind: CollectiveKind
    sockets: Path
    """A folder of this user's alone."""
    libraries: Path
    """Where native code is built."""


class Ground:
    """One generation's, of the conductor's one thread; `sign_of`, `let_in` and `give_up` are its
    watch's, of another."""

    def __init__(self, plan: GroundPlan) -> None:
        """Raises OSError where the system does not give what is needed."""
        self.generation = time.time_ns() // 1_000_000
        self.places = plan.places
        self._sockets = plan.sockets
        with contextlib.ExitStack() as closers:
            self.meeting = MeetingPlace.open(
                plan.kind, self._size, self.generation, address=plan.places.address
            )
            closers.callback(self.meeting.close)
            self._channels = self._open_channels()
            closers.callback(self._channels.close)
            self.inbox = ReportInbox(
                self._channels, world_size=self._size, generation=self.generation
            )
            closers.callback(self.inbox.close)
            self._door: DescriptorDoor | None = None
            self._tcp: ZmqPlanWriter | None = None
            if plan.kind is CollectiveKind.SHARED_MEMORY:
                self.plans: PlanWriter = self._open_ring(plan.libraries, closers)
            else:
                self.plans = self._tcp = self._open_connections()
            closers.callback(self.plans.close)
            self._closers = closers.pop_all()

    def launches(self, spec: bytes, free_bytes: int | None) -> list[RankLaunch]:
        """Of all ranks, the conductor's first; `spec` is the engine's, `free_bytes` as in
        RankLaunch."""
        return [self._launch(rank, spec, free_bytes) for rank in range(self._size)]

    @property
    def is_shared(self) -> bool:
        """The ranks meet in shared memory: nobody waits for others before the first call."""
        return self._tcp is None

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
        """Gives a rank that arrives what it asks for; waits for nobody."""
        if self._door is not None:
            self._door.serve()

    def is_settled(self) -> bool:
        """True once plans reach every rank that has arrived; waits a little."""
        return self._tcp is None or self._tcp.await_ranks(0.05)

    def close(self) -> None:
        """The ranks may still be there: what they have mapped is theirs. Idempotent."""
        self._closers.close()

    @property
    def _size(self) -> int:
        return len(self.places.nodes)

    @property
    def _door_path(self) -> Path:
        return socket_path(self._sockets, "door")

    def _open_ring(self, libraries: Path, closers: contextlib.ExitStack) -> SharedPlanWriter:
        segment = PlanSegment.create(self._size, self.generation)
        closers.callback(segment.close)
        assert self.meeting.segment is not None, "of shared memory, yet without a segment"
        self._door = DescriptorDoor(self._door_path, (self.meeting.segment.fd, segment.fd))
        closers.callback(self._close_door, self._door)
        return SharedPlanWriter(segment, load_plans(libraries))

    def _open_connections(self) -> ZmqPlanWriter:
        return ZmqPlanWriter(self._channels, world_size=self._size, generation=self.generation)

    def _open_channels(self) -> Channels:
        return Channels(self._sockets if self.places.is_one_host else self.places.address)

    def _close_door(self, door: DescriptorDoor) -> None:
        door.close()
        self._door_path.unlink(missing_ok=True)

    def _launch(self, rank: int, spec: bytes, free_bytes: int | None) -> RankLaunch:
        return RankLaunch(
            spec=spec,
            rank=rank,
            world_size=self._size,
            generation=self.generation,
            node=self.places.nodes[rank],
            rendezvous=replace(self.meeting.rendezvous, segment_fd=None),
            reports_address=self.inbox.address,
            descriptors_path="" if self._door is None else str(self._door_path),
            is_beside_conductor=rank in self.places.ranks_beside(CONDUCTOR),
            num_beside=len(self.places.ranks_beside(rank)),
            free_bytes=free_bytes,
            plans_address="" if self._tcp is None else self._tcp.address,
            beats_address="" if self._tcp is None else self._tcp.beats.address,
            keys=self._channels.keys,
        )
