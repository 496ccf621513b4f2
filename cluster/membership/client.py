"""The worker's side of membership: join the router, beat, leave.

    UNJOINED -> JOINED        Join answered
    JOINED -> UNJOINED        a beat came back with known=false: the router restarted, or gave us up
    any: the router may be unreachable for a while; a joined worker goes on beating

Losing the router stops nothing else. One log line per change, not per attempt. A worker that the
router refuses for long is told so, for it serves nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from cluster.adapter import NOTHING_UNREAD, OfferedAdapter, UnreadAdapters
from cluster.errors import IdTaken, InvalidRequest, PairingMismatch, QueueFull, SplitserveError
from cluster.generation import EngineLoad
from cluster.logs import get_logger
from cluster.membership.adapter_wire import adapter_to_wire, unread_to_wire
from cluster.membership.hold import NO_HOLD, WorkerHold, hold_from_wire, hold_to_wire
from cluster.membership.member import Member, member_to_wire
from cluster.process.background import until_one_ends
from cluster.process.backoff import Backoff
from cluster.wire import load_to_wire
from cluster.world import World
from protos import membership_pb2

CALL_TIMEOUT_S = 2.0
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 2.0
"""The longest wait between attempts: how late a restarted router sees its workers again."""

REFUSED_S = 10.0
"""So long a refusal is neither a restart, whose former self still has the id, nor a change of the
fleet."""
REFUSALS = (PairingMismatch, IdTaken, InvalidRequest, QueueFull)
"""What a router has against a worker that asks to join."""
UNSAID = "the router has not said yet whether it may be ready"
_UNDECIDED = {None, *(refusal.__name__ for refusal in REFUSALS)}

_log = get_logger("membership")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What travels with every beat, and as this worker joins."""

    load: EngineLoad
    draining: bool
    kv_transport: str
    hold: WorkerHold = NO_HOLD
    """The newest that any router has told."""
    adapters: tuple[OfferedAdapter, ...] = ()
    """All that requests may ask for."""
    is_settling: bool = False
    """It has not been ready yet."""
    unread_adapters: UnreadAdapters = NOTHING_UNREAD
    """That it may offer soon."""


class MembershipClient:
    """Keeps one worker known to one router.

    `run` is started as a task and cancelled at shutdown, then `leave` is awaited. `take_pulse` is
    called once per beat. All calls from the event loop.
    """

    def __init__(
        self,
        router: str,
        member: Member,
        take_pulse: Callable[[], Pulse],
        world: World,
        *,
        on_refusal: Callable[[bool], None] = lambda is_refused: None,
        on_hold: Callable[[WorkerHold], None] = lambda hold: None,
    ) -> None:
        """`on_refusal`: with True once the router has refused for REFUSED_S, with False when it
        takes this worker in after that. `on_hold`: with what the router knows of this worker's
        hold, new or not, with every answer."""
        self._router = router
        self._member = member
        self._take_pulse = take_pulse
        self._link = world.dialer.membership(router)
        self._world = world
        self._joined = False
        self._settles_later = ""
        self._may_be_known = False
        self._trouble: str | None = None
        self._on_refusal = on_refusal
        self._on_hold = on_hold
        self._refused_since_s: float | None = None
        self._is_refused = False
        self._beat_interval_s = 1.0
        self._soon = asyncio.Event()

    @property
    def is_in_touch(self) -> bool:
        """The router has taken this worker in, and answered the last time."""
        return self._joined and self._trouble is None

    @property
    def is_undecided(self) -> bool:
        """The router has not been heard yet, or refuses this worker: it may do with others. One
        that cannot be reached is neither."""
        return not self._joined and self._trouble in _UNDECIDED

    @property
    def settles_later(self) -> str:
        """Why a worker that has not been ready yet is to stay so, by a router in touch; empty: it
        may be ready."""
        return self._settles_later if self.is_in_touch else ""

    def beat_soon(self) -> None:
        """Something changed that the router should know at once, such as a drain."""
        self._soon.set()

    async def run(self) -> None:
        """Joins and beats until cancelled; whatever goes wrong is tried again."""
        backoff = Backoff(first_s=FIRST_RETRY_S, longest_s=LAST_RETRY_S)
        while True:
            try:
                await self._attempt()
            except Exception as failure:
                self._note_trouble(failure)
                self._note_refusal(failure)
                delay_s = backoff.next_delay_s(healthy_s=0.0)
                await self._pause(delay_s * (0.5 + self._world.chance.random() / 2))
            else:
                backoff.start_anew()
                self._note_recovery()
                await self._pause(self._beat_interval_s if self._joined else FIRST_RETRY_S)

    async def leave(self, *, was_asked: bool = False) -> None:
        """Says goodbye, if the router listens, and closes the channel. `was_asked`: somebody wants
        this worker to end, and nobody expects it back."""
        request = membership_pb2.LeaveRequest(
            worker_id=self._member.worker_id,
            incarnation=self._member.incarnation,
            was_asked=was_asked,
        )
        try:
            if self._may_be_known:
                await self._link.leave(request, timeout_s=CALL_TIMEOUT_S)
        except SplitserveError as failure:
            self._note_trouble(failure)
        finally:
            self._joined = False
            await self._link.close()

    async def _attempt(self) -> None:
        if self._joined:
            await self._beat()
        else:
            await self._join()

    async def _join(self) -> None:
        pulse = self._take_pulse()
        member = replace(self._member, kv_transport=pulse.kv_transport)
        request = membership_pb2.JoinRequest(
            member=member_to_wire(member),
            hold=hold_to_wire(pulse.hold),
            beat=self._beat_of(pulse),
        )
        self._may_be_known = True  # from now on, also when the answer is lost
        reply = await self._link.join(request, timeout_s=CALL_TIMEOUT_S)
        self._beat_interval_s = reply.beat_interval_s
        self._joined = True
        self._settles_later = UNSAID
        self._on_hold(hold_from_wire(reply.hold))
        self._note_admission()
        self._soon.set()  # the first beat is told whether this worker may be ready
        _log.info("joined the router", router=self._router, beat_s=reply.beat_interval_s)

    async def _beat(self) -> None:
        request = self._beat_of(self._take_pulse())
        reply = await self._link.beat(request, timeout_s=CALL_TIMEOUT_S)
        self._settles_later = reply.settles_later
        self._on_hold(hold_from_wire(reply.hold))
        if not reply.known:
            self._joined = False
            _log.warning("the router does not know this worker any more", router=self._router)

    def _beat_of(self, pulse: Pulse) -> membership_pb2.BeatRequest:
        return membership_pb2.BeatRequest(
            worker_id=self._member.worker_id,
            incarnation=self._member.incarnation,
            load=load_to_wire(pulse.load),
            draining=pulse.draining,
            kv_transport=pulse.kv_transport,
            hold=hold_to_wire(pulse.hold),
            adapters=map(adapter_to_wire, pulse.adapters),
            is_settling=pulse.is_settling,
            unread_adapters=unread_to_wire(pulse.unread_adapters),
        )

    async def _pause(self, seconds: float) -> None:
        """Ends early when something is to be told soon."""
        await until_one_ends(self._soon.wait(), self._world.sleep(seconds))
        self._soon.clear()

    def _note_trouble(self, failure: Exception) -> None:
        kind = type(failure).__name__
        if self._trouble == kind:
            return
        self._trouble = kind
        _log.warning(
            "the router cannot be reached, or refuses this worker; it is asked again",
            router=self._router,
            error=str(failure),
            exc_info=None if isinstance(failure, SplitserveError) else failure,
        )

    def _note_recovery(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            _log.info("the router answers again", router=self._router)

    def _note_refusal(self, failure: Exception) -> None:
        """Where the router only does not answer, it has not changed its mind."""
        if self._is_refused or self._joined or not isinstance(failure, REFUSALS):
            return
        now_s = self._world.clock()
        if self._refused_since_s is None:
            self._refused_since_s = now_s
        if now_s - self._refused_since_s >= REFUSED_S:
            self._is_refused = True
            _log.error(
                "the router does not take this worker: it is not ready, and goes on asking",
                router=self._router,
                error=failure.message,
            )
            self._on_refusal(True)

    def _note_admission(self) -> None:
        self._refused_since_s = None
        if self._is_refused:
            self._is_refused = False
            self._on_refusal(False)
