"""A Dialer whose other ends a test plays by hand, without a network."""

from __future__ import annotations

import asyncio

from cluster.deadline import Clock, Sleep
from cluster.dial.dialer import Dialer, MembershipLink, SessionLink
from cluster.errors import SplitserveError, WorkerLost
from cluster.wire import identity_to_wire
from cluster.worker_identity import WorkerIdentity
from protos import membership_pb2, worker_pb2


class ScriptedSession(SessionLink):
    """Says who it is when it is asked; then what `say` puts into it."""

    def __init__(self, identity: WorkerIdentity) -> None:
        self._identity = identity
        self._frames: asyncio.Queue[worker_pb2.WorkerFrame | WorkerLost] = asyncio.Queue()
        self.submitted: list[worker_pb2.Submit] = []
        self.is_closed = False

    def say(self, frame: worker_pb2.WorkerFrame) -> None:
        self._frames.put_nowait(frame)

    def die(self) -> None:
        self._frames.put_nowait(WorkerLost("connection reset"))

    async def read(self) -> worker_pb2.WorkerFrame | None:
        frame = await self._frames.get()
        if isinstance(frame, WorkerLost):
            raise frame
        return frame

    async def write(self, message: worker_pb2.RouterMessage) -> None:
        if message.HasField("open"):
            self.say(worker_pb2.WorkerFrame(opened=identity_to_wire(self._identity)))
        if message.HasField("submit"):
            self.submitted.append(message.submit)

    async def close(self) -> None:
        self.is_closed = True


class Nobody(SessionLink):
    """Where no process listens."""

    async def write(self, message: worker_pb2.RouterMessage) -> None:
        raise WorkerLost("connection refused")

    async def close(self) -> None:
        """Nothing was open."""


class ScriptedRouter(MembershipLink):
    """Takes whoever joins, once it is there; notes when it was asked."""

    def __init__(self, beat_interval_s: float, clock: Clock) -> None:
        self.is_there = False
        self.sleep: Sleep | None = None
        """Of a router that stands still: calls end at their limits."""
        self.knows_nobody = False
        """It was started anew: whoever beats has to join again."""
        self.draining: list[bool] = []
        """By beat: what the worker says."""
        self.settles_later = ""
        """Why whoever is new is not to be ready yet."""
        self.settling: list[bool] = []
        """By beat: what the worker says."""
        self.refuses_with: SplitserveError | None = None
        self.hold = membership_pb2.WorkerHold()
        """What it knows of the worker's."""
        self.told_holds: list[membership_pb2.WorkerHold] = []
        """By join and beat: what the worker knows."""
        self.asked_s: list[float] = []
        self.members: list[membership_pb2.Member] = []
        self.num_beats = 0
        self._beat_interval_s = beat_interval_s
        self._clock = clock

    async def join(
        self, request: membership_pb2.JoinRequest, *, timeout_s: float
    ) -> membership_pb2.JoinResponse:
        self.asked_s.append(self._clock())
        await self._answers(timeout_s)
        if self.refuses_with is not None:
            raise self.refuses_with
        self.members.append(request.member)
        self.told_holds.append(request.hold)
        self.knows_nobody = False
        return membership_pb2.JoinResponse(beat_interval_s=self._beat_interval_s, hold=self.hold)

    async def beat(
        self, request: membership_pb2.BeatRequest, *, timeout_s: float
    ) -> membership_pb2.BeatResponse:
        await self._answers(timeout_s)
        self.num_beats += 1
        self.draining.append(request.draining)
        self.settling.append(request.is_settling)
        self.told_holds.append(request.hold)
        return membership_pb2.BeatResponse(
            known=not self.knows_nobody, hold=self.hold, settles_later=self.settles_later
        )

    async def leave(self, request: membership_pb2.LeaveRequest, *, timeout_s: float) -> None:
        """It goes."""
        await self._answers(timeout_s)

    async def close(self) -> None:
        """Nothing was open."""

    async def _answers(self, timeout_s: float) -> None:
        if self.sleep is not None:
            await self.sleep(timeout_s)
        if not self.is_there or self.sleep is not None:
            raise WorkerLost("connection refused")


class ScriptedDialer(Dialer):
    """Decode workers by address in `workers`; the one router at every address, or those named."""

    def __init__(
        self,
        router: MembershipLink | None = None,
        *,
        routers: dict[str, ScriptedRouter] | None = None,
    ) -> None:
        self.workers: dict[str, WorkerIdentity] = {}
        self.sessions: list[ScriptedSession] = []
        self.num_refused = 0
        self._router, self._routers = router, routers or {}

    def session(self, address: str) -> SessionLink:
        if address not in self.workers:
            self.num_refused += 1
            return Nobody()
        self.sessions.append(ScriptedSession(self.workers[address]))
        return self.sessions[-1]

    def membership(self, address: str) -> MembershipLink:
        router = self._routers.get(address) or self._router
        assert router is not None
        return router
