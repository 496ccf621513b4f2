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

import time
from collections.abc import Callable

from cluster.deadline import Clock, Deadline
from cluster.errors import DeadlineExceeded
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.asked import Asked
from router.dispatch.fleet_room import Lack, Room
from router.dispatch.in_line import InLine
from router.dispatch.next_look import NextLook
from router.dispatch.pace import Pace
from router.dispatch.preemption import MADE_BY_LEAVING, Preemption
from router.dispatch.pricings import Pricings
from router.dispatch.turned_away import queue_full, too_late
from router.fairness.line import Line
from router.fairness.shares import Bill, Shares
from router.fleet.worker_room import HeldRoom, Need
from router.tenants.priority import NUM_LEVELS, Priority

MAX_BEHIND = 32
"""That are asked at a look whether they fit where the first in line does not: some 2 us each."""


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
        self._max_running = max_running
        self._max_queued = max_queued
        self._room = room
        self._next_look = NextLook(self.look, clock)
        self._num_running = 0
        self._num_unused = 0
        self._pace = Pace(clock)
        self._line = Line(NUM_LEVELS, shares)
        self._is_looking = False
        self._kept: InLine | None = None
        """Whom a worker is kept for, while it waits."""
        self.preemption = Preemption()
        """Of those who have places."""
        self.pricings = Pricings(clock)

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
            if (hold := self._room_for(asked)) is not None:
                return self._served_at_once(asked, hold)
            self._pace.waits()
            self._next_look.within(self._room.free_in_s, self.pricings.ready_in_s)
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
        self.pricings.renew()
        while (waiter := self._first()) is not None:
            if self._is_served(waiter, self._room_made_for):
                continue
            if not self._lacks_room_for(waiter.asked.need):
                return
            if not self._is_kept_one_served(waiter):
                self._let_pass(waiter)
                return

    def _is_kept_one_served(self, first: InLine) -> bool:
        """Whoever is first now: a worker is kept from all but one, who is asked at each look."""
        self._room.keep_for(first.asked)
        if self._room.kept_for is first.asked:
            self._kept = first
        kept = self._kept
        if kept is None or kept is first or kept.place.done():
            return False
        return self._is_served(kept, self._room_for)

    def _is_served(self, waiter: InLine, room_for: Callable[[Asked], HeldRoom | None]) -> bool:
        """True also for one that failed."""
        try:
            return self._serve(waiter, room_for(waiter.asked))
        except Exception as error:
            self._remove(waiter)
            waiter.place.set_exception(error)
            return True

    def _let_pass(self, first: InLine) -> None:
        """It needs more than there is, and less is there: who needs less has it, if that does not
        delay the first."""
        too_large = [first.asked.need]
        for waiter in self._line.in_order(MAX_BEHIND):
            assert isinstance(waiter, InLine)
            need = waiter.asked.need
            if waiter.place.done() or any(need.exceeds(each) for each in too_large):
                continue
            if not self._is_served(waiter, self._room_for):
                if not self._lacks_room_for(need):
                    return
                too_large.append(need)

    def _lacks_room_for(self, need: Need) -> bool:
        """True where a smaller one may have room."""
        if self._num_running >= self._max_running:
            return False
        lacks = self._room.lacks
        return lacks in (Lack.BLOCKS, Lack.KEPT) or (lacks is Lack.SEATS and need.num_seqs > 1)

    def _first(self) -> InLine | None:
        """Of those who still want a place: who leaves is in line until its next step."""
        while (waiter := self._line.first()) is not None:
            assert isinstance(waiter, InLine)
            if not waiter.place.done():
                return waiter
            self._remove(waiter)
        return None

    def _remove(self, waiter: InLine) -> None:
        """Out of the line, out of turn; idempotent."""
        self._line.remove(waiter)
        self._let_go(waiter)

    def _let_go(self, waiter: InLine) -> None:
        self._room.let_go(waiter.asked)
        if self._kept is waiter:
            self._kept = None

    def _serve(self, waiter: InLine, hold: HeldRoom | None) -> bool:
        """False where there is no room for it now."""
        if hold is None:
            self._next_look.within(self._room.free_in_s, self.pricings.ready_in_s)
            return False
        lease = self._lease(waiter.asked, hold, lambda: self._line.serve(waiter))
        self._let_go(waiter)
        self._pace.granted(self._num_running)
        waiter.place.set_result(lease)
        return True

    def _room_for(self, asked: Asked) -> HeldRoom | None:
        if self._num_running >= self._max_running:
            return None
        return self._room.take(asked, 1000 * self.wait_s)

    def _room_made_for(self, asked: Asked) -> HeldRoom | None:
        """Also by others who give way."""
        hold, is_full = self._room_for(asked), self._num_running >= self._max_running
        if hold is not None or not (is_full or self._room.lacks in MADE_BY_LEAVING):
            return hold
        return self.preemption.room_for(
            asked, self._room, is_full=is_full, look=lambda: self._room_for(asked)
        )

    def _lease(self, asked: Asked, hold: HeldRoom, serve: Callable[[], None]) -> AdmissionLease:
        """After `serve`: its tenant is charged from the level on which that set it. Where one of
        these fails, nothing is held."""
        try:
            serve()
            shares = self._line.shares_of(asked.priority.level)
            bill = asked.bill or Bill(shares, asked.tenant, asked.weight, asked.need.prompt_tokens)
        except BaseException:
            hold.release()
            self._room.is_used()
            raise
        self._num_running += 1
        self._num_unused += 1
        return AdmissionLease(self, hold, bill)

    def _served_at_once(self, asked: Asked, hold: HeldRoom) -> AdmissionLease:
        shares = self._line.shares_of(asked.priority.level)

        def serve() -> None:
            shares.came(asked.tenant)
            shares.served(asked.tenant)
            self._pace.granted_at_once(self._num_running)

        return self._lease(asked, hold, serve)

    async def _wait(self, asked: Asked) -> AdmissionLease:
        waiter = InLine.of(asked)
        gives_way = self._gives_way_to(waiter)
        num_before = self._line.num_before(waiter)
        line_s = (num_before + 1) * (self._pace.gap_s or 0.0)
        asked.arrival.waits(num_before, self.num_queued, 1000 * line_s, self._room.lacks)
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

    def _gives_way_to(self, newcomer: InLine) -> InLine | None:
        """Who leaves the line for it; None: there is room for all. Raises QueueFull where it would
        be itself, before anything is computed for it."""
        if newcomer.asked.bill is not None or not self._is_full:
            return None
        last = self._line.last(newcomer)
        if last is newcomer:
            raise queue_full(self._line.num_waiting, self.wait_s)
        assert isinstance(last, InLine)
        return last

    @property
    def _is_full(self) -> bool:
        """Who waits for workers may have the places of those that do not run for that."""
        num_free = self._max_running - self._num_running
        return self._line.num_waiting >= self._max_queued + num_free

    def _turn_away(self, waiter: InLine) -> None:
        self._remove(waiter)
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
        self._remove(waiter)
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
