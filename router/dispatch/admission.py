"""The bounded door before dispatch: who runs, who waits, who is told to come back.

    admit: -> a place (a lease) -> goes to its worker -> computed -> released
           '-> waits in line, by class, share and deadline -> a place
                |--> Hopeless          its first token would come after its deadline: at once, or
                |                      when the last moment to begin has passed
                |--> QueueFull         no room in line, or it made room for another one
                '--> cancelled         the client left

A place is one of the router's, and a part of what the fleet can hold. Who needs more of it than
there is has a worker kept for it (router/dispatch/kept_worker.py), and others pass. So the queue is
here, where tenants have shares, and not in engines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from cluster.deadline import Clock, Deadline
from cluster.errors import DeadlineExceeded
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.asked import Asked
from router.dispatch.fleet_room import Room
from router.dispatch.in_line import InLine, check_wait
from router.dispatch.line_search import LineSearch
from router.dispatch.next_look import NextLook
from router.dispatch.pace import Pace
from router.dispatch.pricings import Pricings
from router.dispatch.running_places import RunningPlaces
from router.dispatch.turned_away import queue_full, too_late
from router.fairness.line import Line, Ticket
from router.fairness.shares import Bill, Shares
from router.fleet.room_part import RoomPart
from router.tenants.priority import NUM_LEVELS, Priority


class Admission:
    """Every call comes from the event loop's thread."""

    def __init__(
        self,
        max_running: int,
        max_queued: int,
        *,
        room: Room,
        shares: Callable[[int], Shares] = lambda level: Shares(),
        clock: Clock = time.monotonic,
    ) -> None:
        """`shares`: of each class, by its level."""
        self._max_queued = max_queued
        self._room = room
        self._next_look = NextLook(self.look, clock)
        self._places = RunningPlaces(max_running, room)
        self._pace = Pace(clock)
        self._line = Line(NUM_LEVELS, shares)
        self._is_looking = False
        self._search = LineSearch(self, self._line, self._places, room)
        self.preemption = self._places.preemption
        self.pricings = Pricings(clock)

    @property
    def num_running(self) -> int:
        """Leases that are out."""
        return self._places.num_running

    @property
    def num_unused(self) -> int:
        """Of these, whose requests are not at their workers yet."""
        return self._places.num_unused

    @property
    def num_queued(self) -> int:
        """Requests that wait."""
        return self._line.num_waiting

    def queued_by_tenant(self, priority: Priority) -> dict[str, int]:
        """How many wait of each tenant, in one class."""
        return self._line.num_by_tenant(priority.level)

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
            self.pricings.renew()
            if (part := self._places.room_for(asked, self.wait_s)) is not None:
                return self._served_at_once(asked, part)
            self._pace.waits()
            self._next_look.within(self._room.free_in_s, self.pricings.ready_in_s)
        return await self._wait(asked)

    def look(self) -> None:
        """There may be room: those whose turn it is get it. Raises nothing into whoever made room;
        what fails is told to the one whose turn it was."""
        if self._is_looking or not self._line.num_waiting:  # who gives way in here makes room here
            return
        self._is_looking = True
        self.pricings.renew()
        try:
            self._search.run()
        finally:
            self._is_looking = False

    def serve(self, waiter: InLine, part: RoomPart | None) -> bool:
        """See LineOwner."""
        if part is None:
            waiter.asked.arrival.lacked = self._places.lacks
            self._next_look.within(self._room.free_in_s, self.pricings.ready_in_s)
            return False
        lease = self._lease(waiter.asked, part, lambda: self._line.serve(waiter))
        self._search.let_go(waiter)
        self._pace.granted(self.num_running)
        waiter.place.set_result(lease)
        return True

    def remove(self, waiter: InLine) -> None:
        """See LineOwner."""
        self._line.remove(waiter)
        self._search.let_go(waiter)

    def _lease(self, asked: Asked, part: RoomPart, serve: Callable[[], None]) -> AdmissionLease:
        """After `serve`: its tenant is charged from the level on which that set it. Where one of
        these fails, nothing is held."""
        try:
            serve()
            shares = self._line.shares_of(asked.priority.level)
            bill = asked.bill or Bill(shares, asked.tenant, asked.weight, asked.need.prompt_tokens)
        except BaseException:
            part.release()
            self._room.is_used()
            raise
        self._places.granted()
        return AdmissionLease(self, part, bill)

    def _served_at_once(self, asked: Asked, part: RoomPart) -> AdmissionLease:
        shares = self._line.shares_of(asked.priority.level)

        def serve() -> None:
            shares.came(asked.tenant)
            shares.served(asked.tenant)
            self._pace.granted_at_once(self.num_running)

        return self._lease(asked, part, serve)

    async def _wait(self, asked: Asked) -> AdmissionLease:
        waiter = InLine.of(asked)
        gives_way = self._gives_way_to(waiter)
        num_before = self._line.num_before(waiter)
        line_s = self._line_s(num_before)
        asked.arrival.waits(num_before, self.num_queued, 1000 * line_s, self._places.lacks)
        outlook = waiter.foretold(line_s)
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
            raise too_late(self.wait_s, outlook) from None
        except BaseException:
            self._withdraw(waiter)
            raise

    def check_room(
        self, tenant: str, priority: Priority, weight: float, deadline: Deadline | None
    ) -> None:
        """Of one that is not read yet. Raises QueueFull and Hopeless where `admit` would now,
        whatever it is. `deadline`: the latest that it may have; None: that is not known."""
        if not self._line.num_waiting:
            return
        due_s = math.inf if deadline is None else deadline.at_s
        newcomer = Ticket(tenant=tenant, level=priority.level, weight=weight, due_s=due_s)
        if self._is_full:
            self._last_of_all(newcomer)
        if deadline is not None:
            check_wait(None, self._line_s(self._line.num_before(newcomer)), deadline)

    def _line_s(self, num_before: float) -> float:
        """Until one that so many are before has its turn."""
        return (num_before + 1) * (self._pace.gap_s or 0.0)

    def _gives_way_to(self, newcomer: InLine) -> InLine | None:
        """Who leaves the line for it; None: there is room for all. Raises QueueFull where it would
        be itself, before anything is computed for it."""
        if newcomer.asked.is_let_in or not self._is_full:
            return None
        last = self._last_of_all(newcomer)
        assert isinstance(last, InLine)
        return last

    def _last_of_all(self, newcomer: Ticket) -> Ticket:
        """Who leaves a full line for it. Raises QueueFull where it would be itself."""
        last = self._line.last(newcomer)
        if last is newcomer:
            raise queue_full(self._line.num_waiting, self.wait_s)
        return last

    @property
    def _is_full(self) -> bool:
        """Who waits for workers may have the places of those that do not run for that."""
        return self._line.num_waiting >= self._max_queued + self._places.num_free

    def _turn_away(self, waiter: InLine) -> None:
        self.remove(waiter)
        if not waiter.place.done():
            waiter.place.set_exception(queue_full(self._line.num_waiting, self.wait_s))

    def _withdraw(self, waiter: InLine) -> None:
        """Out of the line; a place that was granted in the same moment goes on to the next. And who
        was behind it may find room where it did not."""
        place = waiter.place
        if place.done() and not place.cancelled() and place.exception() is None:
            place.result().release()
            if waiter.asked.bill is None:
                place.result().bill.nothing_done()
        self.remove(waiter)
        self.look()

    def lease_used(self) -> None:
        """See PlaceOwner."""
        self._places.used()
        self.look()

    def lease_released(self) -> None:
        """See PlaceOwner."""
        self._places.released()
        self.look()
