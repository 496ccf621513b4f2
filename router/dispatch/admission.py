"""The bounded door before dispatch: who runs, who waits, who is told to come back.

    admit: -> a place (a lease) -> goes to its worker -> computed -> released
           '-> waits in line, by class, share and deadline -> a place
                |--> Hopeless          its first token would come after its deadline: at once, or
                |                      when the last moment to begin has passed
                |--> QueueFull         no room in line, or it made room for another one
                '--> cancelled         the client left

A place is one of the router's, and a part of what the fleet can hold. So the queue is here, where
tenants have shares, and not in engines.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster.deadline import Clock, Deadline
from cluster.errors import DeadlineExceeded, Hopeless, QueueFull
from cluster.retry_after import DEFAULT_RETRY_AFTER_S
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.fleet_room import Prospect, Room
from router.dispatch.outlook import Outlook
from router.dispatch.pace import Pace
from router.dispatch.preemption import Preemption, is_soon
from router.fairness.line import Line, Ticket
from router.fairness.shares import Bill, Shares
from router.fleet.worker_room import HeldRoom, Need
from router.tenants.priority import NUM_LEVELS, Priority

LOOK_INTERVAL_S = 0.001
"""At least, between two looks that nothing was heard before."""


@dataclass(slots=True, eq=False, kw_only=True)
class Asked:
    """A request at the door."""

    tenant: str = ""
    priority: Priority = Priority.STANDARD
    weight: float = 1.0
    deadline: Deadline
    """Of its first token."""
    need: Need
    prospect: Prospect
    bill: Bill | None = None
    """Of one that had a place before, and gave it up: it comes into the line whether that is full
    or not, and is not turned away at once."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Waiter(Ticket):
    asked: Asked
    place: asyncio.Future[AdmissionLease]


class Admission:
    """Every call comes from the event loop's thread."""

    def __init__(
        self,
        max_running: int,
        max_queued: int,
        *,
        room: Room,
        shares: Callable[[], Shares] = Shares,
        clock: Clock = time.monotonic,
    ) -> None:
        """`shares`: made for each class."""
        self._max_running = max_running
        self._max_queued = max_queued
        self._room = room
        self._next_look: asyncio.TimerHandle | None = None
        self._clock = clock
        self._num_running = 0
        self._num_unused = 0
        self._pace = Pace(clock)
        self._line = Line(NUM_LEVELS, shares)
        self._is_looking = False
        self.preemption = Preemption()
        """Of those who have places."""

    @property
    def num_running(self) -> int:
        """Leases that are out."""
        return self._num_running

    @property
    def num_unused(self) -> int:
        """Of these, whose requests are not at their workers yet."""
        return self._num_unused

    @property
    def num_queued(self) -> int:
        """Requests that wait."""
        return self._line.num_waiting

    def num_queued_of(self, priority: Priority) -> int:
        """Of one class."""
        return self._line.num_of(priority.level)

    @property
    def wait_s(self) -> float:
        """How long the line is, in time: what one that comes last in it would wait."""
        return self._line.num_waiting * (self._pace.gap_s or 0.0)

    async def admit(self, asked: Asked) -> AdmissionLease:
        """Waits for a place, as long as that leaves time for the rest. Raises QueueFull, Hopeless
        and DeadlineExceeded."""
        if asked.deadline.has_passed:
            raise DeadlineExceeded("the deadline had passed when the request was queued")
        if not self._line.num_waiting:
            if (hold := self._room_for(asked)) is not None:
                return self._served_at_once(asked, hold)
            self._pace.waits()
            self._look_in(self._room.free_in_s)
        return await self._wait(asked)

    def look(self) -> None:
        """There may be room: those whose turn it is get it. Raises nothing into whoever made room;
        what fails is told to the one whose turn it was."""
        if not self._is_looking:  # who gives way in here makes room in here
            self._is_looking = True
            try:
                self._look()
            finally:
                self._is_looking = False

    def _look(self) -> None:
        while (waiter := self._first()) is not None:
            try:
                if not self._serve(waiter):
                    return
            except Exception as error:
                self._line.remove(waiter)
                waiter.place.set_exception(error)

    def _first(self) -> _Waiter | None:
        """Of those who still want a place: who leaves is in line until its next step."""
        while (waiter := self._line.first()) is not None:
            assert isinstance(waiter, _Waiter)
            if not waiter.place.done():
                return waiter
            self._line.remove(waiter)
        return None

    def _serve(self, waiter: _Waiter) -> bool:
        """False where there is no room for it now."""
        if (hold := self._room_made_for(waiter.asked)) is None:
            self._look_in(self._room.free_in_s)
            return False
        try:
            self._line.serve(waiter)
            lease = self._lease(waiter.asked, hold)
        except BaseException:
            hold.release()
            self._room.is_used()
            raise
        self._pace.granted()
        waiter.place.set_result(lease)
        return True

    def _look_in(self, seconds: float | None) -> None:
        """Once more, at the soonest time that was asked for."""
        if seconds is not None and self._next_look is None:
            loop = asyncio.get_running_loop()
            self._next_look = loop.call_later(max(LOOK_INTERVAL_S, seconds), self._look_again)

    def _room_for(self, asked: Asked) -> HeldRoom | None:
        if self._num_running >= self._max_running:
            return None
        return self._room.take(asked.need, asked.prospect)

    def _room_made_for(self, asked: Asked) -> HeldRoom | None:
        """Also by others who give way."""
        hold, is_full = self._room_for(asked), self._num_running >= self._max_running
        if hold is not None or (not is_full and is_soon(self._room.free_in_s)):
            return hold
        return self.preemption.room_for(
            asked.priority, asked.need, is_full=is_full, look=lambda: self._room_for(asked)
        )

    def _lease(self, asked: Asked, hold: HeldRoom) -> AdmissionLease:
        """After it was served: its tenant is charged from the level on which that set it."""
        shares = self._line.shares_of(asked.priority.level)
        bill = asked.bill or Bill(shares, asked.tenant, asked.weight, asked.need.prompt_tokens)
        self._num_running += 1
        self._num_unused += 1
        return AdmissionLease(self, hold, bill)

    def _served_at_once(self, asked: Asked, hold: HeldRoom) -> AdmissionLease:
        shares = self._line.shares_of(asked.priority.level)
        shares.came(asked.tenant)
        shares.served(asked.tenant)
        self._pace.granted_at_once()
        return self._lease(asked, hold)

    async def _wait(self, asked: Asked) -> AdmissionLease:
        waiter = _Waiter(
            tenant=asked.tenant,
            level=asked.priority.level,
            weight=asked.weight,
            due_s=asked.deadline.at_s,
            asked=asked,
            place=asyncio.get_running_loop().create_future(),
        )
        gives_way = self._gives_way_to(waiter)
        outlook = self._foretold(waiter)
        if gives_way is not None:
            self._turn_away(gives_way)
        self._line.add(waiter)
        self.look()
        service_s = 0.0 if outlook is None else outlook.most_ms / 1000
        try:
            async with Deadline(asked.deadline.at_s - service_s, asked.deadline.clock).bound():
                return await waiter.place
        except TimeoutError:
            self._withdraw(waiter)
            raise self._too_late(outlook) from None
        except BaseException:
            self._withdraw(waiter)
            raise

    def _foretold(self, waiter: _Waiter) -> Outlook | None:
        """What it will take once it has a place. Raises Hopeless."""
        wait_s = (self._line.num_before(waiter) + 1) * (self._pace.gap_s or 0.0)
        outlook = waiter.asked.prospect.outlook()
        if waiter.asked.bill is not None:
            return outlook
        behind = (outlook or Outlook()).after(1000 * wait_s)
        retry_after_s = max(DEFAULT_RETRY_AFTER_S, wait_s)
        behind.check(behind.most_ms, waiter.asked.deadline, retry_after_s)
        return outlook

    def _gives_way_to(self, newcomer: _Waiter) -> _Waiter | None:
        """Who leaves the line for it; None: there is room for all. Raises QueueFull where it would
        be itself, before anything is computed for it."""
        if self._line.num_waiting < self._max_queued or newcomer.asked.bill is not None:
            return None
        last = self._line.last(newcomer)
        if last is newcomer:
            raise self._full()
        assert isinstance(last, _Waiter)
        return last

    def _turn_away(self, waiter: _Waiter) -> None:
        self._line.remove(waiter)
        if not waiter.place.done():
            waiter.place.set_exception(self._full())

    def _full(self) -> QueueFull:
        wait_s = max(DEFAULT_RETRY_AFTER_S, self.wait_s)
        return QueueFull(
            f"{self._line.num_waiting} requests wait, which is the limit; try again in "
            f"{wait_s:.0f} s, or raise --max-queued-requests",
            retry_after_s=wait_s,
        )

    def _too_late(self, outlook: Outlook | None) -> Hopeless:
        """It waited until there was no time left for the rest of it."""
        error = Hopeless(
            "the request has waited until its deadline was too near for the rest of it: come again "
            "later, allow more time, or add workers",
            retry_after_s=max(DEFAULT_RETRY_AFTER_S, self.wait_s),
        )
        error.details = None if outlook is None else outlook.details
        return error

    def _withdraw(self, waiter: _Waiter) -> None:
        """Out of the line; a place that was granted in the same moment goes on to the next. And who
        was behind it may find room where it did not."""
        place = waiter.place
        if place.done() and not place.cancelled() and place.exception() is None:
            place.result().release()
        self._line.remove(waiter)
        self.look()

    def lease_used(self) -> None:
        """See PlaceOwner."""
        self._num_unused -= 1
        self._room.is_used()
        self.look()

    def lease_released(self) -> None:
        """See PlaceOwner."""
        self._num_running -= 1
        self.look()

    def _look_again(self) -> None:
        self._next_look = None
        self.look()
