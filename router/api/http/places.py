"""Places of a door's connections: for requests, and some more for operators.

    connection -> a place -> all of its requests are served
               '-> none for its address -> a place in reserve -> health and metrics only
                                       '-> none there either -> closed at once

No address has all of either (`fair_turns`), however many connections it opens and keeps silent.
"""

from __future__ import annotations

from enum import Enum, auto

from router.front.caller import Caller
from router.front.fair_turns import CallerCounts, has_place_for
from router.front.limits import DoorLimits


class ConnectionPlace(Enum):
    """What a connection's requests may ask for."""

    SERVED = auto()
    RESERVE = auto()


class ConnectionPlaces:
    """One per door. From the event loop only."""

    def __init__(self, limits: DoorLimits) -> None:
        self._limits = limits
        self._taken = {
            ConnectionPlace.SERVED: CallerCounts(),
            ConnectionPlace.RESERVE: CallerCounts(),
        }

    def take(self, caller: Caller) -> ConnectionPlace | None:
        """None where there is no place at all; else `leave` it once."""
        limits = self._limits
        numbers = (limits.max_connections, limits.reserved_connections)
        for (place, taken), num_places in zip(self._taken.items(), numbers, strict=True):
            if has_place_for(caller, taken, num_places):
                taken.add(caller)
                return place
        return None

    def leave(self, caller: Caller, place: ConnectionPlace) -> None:
        """The connection is gone."""
        self._taken[place].remove(caller)
