"""Places of one router, and the part of the fleet that goes with each.

asked for -> granted -> used (its request is at its workers, or goes nowhere) -> released
   '- None: `lacks` says why
"""

from __future__ import annotations

from router.dispatch.asked import Asked
from router.dispatch.fleet_room import Lack, Room
from router.dispatch.preemption import MADE_BY_LEAVING, Preemption
from router.fleet.need import Need
from router.fleet.room_part import RoomPart


class RunningPlaces:
    """From the event loop only."""

    def __init__(self, max_running: int, room: Room) -> None:
        self._max_running = max_running
        self._room = room
        self.num_running = 0
        """That are out."""
        self.num_unused = 0
        """Of these, whose requests are not at their workers yet."""
        self.preemption = Preemption()
        """Of those who have places."""

    @property
    def num_free(self) -> int:
        """Of the router's own."""
        return self._max_running - self.num_running

    @property
    def is_full(self) -> bool:
        """True where as many are out as may be, whatever workers could hold."""
        return self.num_free <= 0

    @property
    def lacks(self) -> Lack:
        """After a no."""
        return Lack.PLACES if self.is_full else self._room.lacks

    def room_for(self, asked: Asked, line_s: float) -> RoomPart | None:
        """None: not now. `line_s`: how long the line is."""
        return None if self.is_full else self._room.take(asked, 1000 * line_s)

    def room_made_for(self, asked: Asked, line_s: float) -> RoomPart | None:
        """Also by others who give way."""
        part = self.room_for(asked, line_s)
        if part is not None or self.lacks not in MADE_BY_LEAVING:
            return part
        return self.preemption.room_for(
            asked, self._room, is_full=self.is_full, look=lambda: self.room_for(asked, line_s)
        )

    def may_hold_less_than(self, need: Need) -> bool:
        """After a no to that one: true where a smaller one may have room."""
        lacks = self.lacks
        return lacks in (Lack.BLOCKS, Lack.KEPT) or (lacks is Lack.SEATS and need.num_seqs > 1)

    def granted(self) -> None:
        """One more is out."""
        self.num_running += 1
        self.num_unused += 1

    def used(self) -> None:
        """Once for each."""
        self.num_unused -= 1
        self._room.is_used()

    def released(self) -> None:
        """Once for each."""
        self.num_running -= 1
