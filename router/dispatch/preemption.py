"""Who gives its place to a higher class: requests whose clients have nothing yet.

    at its workers -- tokens have come --> keeps its place to the end
         '- the line's head has a higher class, and nothing is free -> back into the line

What its workers have done for it is lost, so that each request gives way a stated number of times:
from then on it keeps its place, and nobody starves. The last that came of the lowest class goes
first, and only where that makes room: a turn to compute a prompt comes free sooner than that.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Protocol

from cluster.errors import SplitserveError
from router.dispatch.asked import Asked
from router.dispatch.fleet_room import Lack, Room
from router.fleet.room_part import RoomPart
from router.tenants.priority import NUM_LEVELS, Priority

MAX_LOOKED_AT = 16
"""Of a class, each time: the last ones that came."""
MADE_BY_LEAVING = frozenset({Lack.PLACES, Lack.SEATS, Lack.BLOCKS})
"""What one more that leaves may make; a turn and a kept worker come free by themselves."""


class GaveWay(SplitserveError):
    """The request left its workers for one of a higher class. No client is told."""


class Preemptible(Protocol):
    """A request at its workers."""

    @property
    def request_id(self) -> str:
        """Unique."""

    @property
    def priority(self) -> Priority:
        """Its class."""

    @property
    def part(self) -> RoomPart:
        """Its part of a worker's room."""

    def may_give_way(self) -> bool:
        """True while nothing has come for it, and it has not given way too often."""

    def give_way(self, to: Priority) -> None:
        """It leaves its workers, and its place is free when this returns."""


class Preemption:
    """Of one router. All calls from the event loop."""

    def __init__(self) -> None:
        self._waiting: list[dict[str, Preemptible]] = [{} for _ in range(NUM_LEVELS)]
        """For their first tokens; by class, in the order of coming."""

    @property
    def num_waiting(self) -> int:
        """That could be asked to give way."""
        return sum(map(len, self._waiting))

    def add(self, request: Preemptible) -> None:
        """It is at its workers, and nothing has come; `remove` follows."""
        if request.may_give_way():
            self._waiting[request.priority.level][request.request_id] = request

    def remove(self, request: Preemptible) -> None:
        """Something has come, or it is over; idempotent."""
        self._waiting[request.priority.level].pop(request.request_id, None)

    def room_for(
        self, asked: Asked, room: Room, *, is_full: bool, look: Callable[[], RoomPart | None]
    ) -> RoomPart | None:
        """What `look`, which asks `room`, finds when others have given way; None: they would not
        make enough. `is_full`: the router's own places are taken, so that any of them would do."""
        while (request := self._next(asked, room, is_full)) is not None:
            self.remove(request)
            request.give_way(asked.priority)
            if (part := look()) is not None or room.lacks not in MADE_BY_LEAVING:
                return part
            is_full = False
        return None

    def _next(self, asked: Asked, room: Room, is_full: bool) -> Preemptible | None:
        in_vain = frozenset() if is_full else room.in_vain(asked.need)
        for waiting in reversed(self._waiting[asked.priority.level + 1 :]):
            for request in islice(reversed(waiting.values()), MAX_LOOKED_AT):
                if not request.may_give_way():  # it may have become old since it was added
                    continue
                part = request.part
                if is_full or (part not in in_vain and part.makes_room_for(asked.need)):
                    return request
        return None
