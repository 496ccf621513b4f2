"""Who of a line is served at a look.

whose turn it is by age (see Line) -> whose turn it is by class, share and deadline
  |- has room               -> served, and the search begins anew
  |  (before it one that a worker is kept for, of no lower class, once it has room)
  |- lacks a turn, or seats -> the search ends: what it waits for comes free by itself
  '- needs more than there is -> a worker is kept for one of these, who is asked at each look;
                                 those behind that need less are served
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

from router.dispatch.asked import Asked
from router.dispatch.fleet_room import Lack, Room
from router.dispatch.in_line import InLine
from router.dispatch.running_places import RunningPlaces
from router.fairness.line import Line
from router.fleet.room_part import RoomPart

MAX_BEHIND = 32
"""That are asked at a look whether they fit where the first in line does not: some 2 us each."""
RoomFor = Callable[[Asked, float], RoomPart | None]
"""See RunningPlaces."""


class LineOwner(Protocol):
    """Whose line it is: Admission."""

    @property
    def wait_s(self) -> float:
        """How long the line is."""
        ...

    def serve(self, waiter: InLine, part: RoomPart | None) -> bool:
        """False where it has none: there is no room for it now."""
        ...

    def remove(self, waiter: InLine) -> None:
        """Out of the line, out of turn; idempotent."""
        ...


class ByAge(enum.Enum):
    """What became of one whose turn it is by its age."""

    SERVED = enum.auto()
    """Or it is gone."""
    NEXT = enum.auto()
    """What it waits for comes free by itself, and is its own then."""
    NOBODY = enum.auto()
    """There is none, or it waits for room, of which others need less."""


class LineSearch:
    """Of one line. From the event loop only."""

    def __init__(self, owner: LineOwner, line: Line, places: RunningPlaces, room: Room) -> None:
        self._owner = owner
        self._line = line
        self._places = places
        self._room = room
        self._kept: InLine | None = None
        """Whom a worker is kept for, while it waits."""

    def run(self) -> None:
        """One look. Raises nothing: what fails is told to the one whose turn it was."""
        while (waiter := self._first()) is not None:
            by_age = self._by_age()
            if by_age is ByAge.NEXT:
                return
            if by_age is ByAge.SERVED or self._has_kept_its_turn(waiter):
                continue
            if self._is_served(waiter, self._places.room_made_for):
                continue
            if not self._places.may_hold_less_than(waiter.asked.need):
                return
            if not self._is_kept_one_served(waiter):
                self._let_pass(waiter)
                return

    def let_go(self, waiter: InLine) -> None:
        """It waits no longer."""
        self._room.let_go(waiter.asked)
        if self._kept is waiter:
            self._kept = None

    def _first(self) -> InLine | None:
        """Of those who still want a place: who leaves is in line until its next step."""
        while (waiter := self._line.first()) is not None:
            assert isinstance(waiter, InLine)
            if not waiter.place.done():
                return waiter
            self._owner.remove(waiter)
        return None

    def _by_age(self) -> ByAge:
        """It makes nobody give way, and may not be held back for those who need less."""
        aged = self._line.aged()
        if aged is None:
            return ByAge.NOBODY
        assert isinstance(aged, InLine)
        if aged.place.done():
            self._owner.remove(aged)
            return ByAge.SERVED
        if self._is_served(aged, self._places.room_for):
            return ByAge.SERVED
        if self._places.may_hold_less_than(aged.asked.need):
            self._keep_for(aged)
            return ByAge.NOBODY
        return ByAge.NOBODY if self._places.lacks is Lack.OTHERS_TURN else ByAge.NEXT

    def _is_kept_one_served(self, first: InLine) -> bool:
        """Whoever is first now: a worker is kept from all but one, who is asked at each look."""
        self._keep_for(first)
        kept = self._kept
        if kept is None or kept is first or kept.place.done():
            return False
        return self._is_served(kept, self._places.room_for)

    def _has_kept_its_turn(self, first: InLine) -> bool:
        """Of one who was first before, and whose worker has room by now: turns at prompts come one
        by one, and whoever is first would have each. Not before a higher class."""
        kept = self._kept
        if kept is None or kept is first or kept.place.done():
            return False
        if first.asked.priority.level < kept.asked.priority.level:
            return False
        return self._is_served(kept, self._places.room_for)

    def _keep_for(self, waiter: InLine) -> None:
        self._room.keep_for(waiter.asked)
        if self._room.kept_for is waiter.asked:
            self._kept = waiter

    def _is_served(self, waiter: InLine, room_for: RoomFor) -> bool:
        """True also for one that failed."""
        try:
            return self._owner.serve(waiter, room_for(waiter.asked, self._owner.wait_s))
        except Exception as error:
            self._owner.remove(waiter)
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
            if not self._is_served(waiter, self._places.room_for):
                if not self._places.may_hold_less_than(need):
                    return
                too_large.append(need)
