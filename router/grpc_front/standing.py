"""What a gate holds of its callers, by what came of the places that they had.

Two kinds of callers: a client's upload takes the time that it takes, so clients are trusted until
they lose places' time; a worker's message is there at once, so nobody is trusted to sit in a place,
and who was heard before is known.
"""

from __future__ import annotations

import enum
from typing import Protocol

from cluster.deadline import Clock
from router.front.caller import Caller
from router.grpc_front.heard_before import HeardBefore
from router.grpc_front.lost_time import LostTime, LostTimeLimits


class PlaceOutcome(enum.Enum):
    """What came of a place."""

    WHOLE = enum.auto()
    LOST = enum.auto()
    """No message."""
    GAVE_WAY = enum.auto()
    """None either, but it might have come in time."""


class Standing(Protocol):
    """Asked by one gate, from its event loop."""

    def is_known(self, caller: Caller) -> bool:
        """Whether its connection comes before others that have no more. Asked once for each
        message, as it begins: that one has to come whole before the connection is known again."""

    def is_doubted(self, caller: Caller) -> bool:
        """Whether it comes after all that are not, and gives way to who waits; at this moment."""

    def settle(self, caller: Caller, outcome: PlaceOutcome, took_s: float) -> None:
        """It had a place for so long."""


class ClientStanding:
    """Trusted, but for addresses that lost the time of places."""

    def __init__(self, limits: LostTimeLimits, clock: Clock) -> None:
        self._lost = LostTime(limits)
        self._clock = clock

    def is_known(self, caller: Caller) -> bool:
        """Never: newcomers would not have their turn."""
        return False

    def is_doubted(self, caller: Caller) -> bool:
        """See LostTime."""
        return self._lost.is_doubted(caller.address, self._clock())

    def settle(self, caller: Caller, outcome: PlaceOutcome, took_s: float) -> None:
        """See LostTime."""
        if outcome is PlaceOutcome.WHOLE:
            self._lost.make_good(caller.address, took_s, self._clock())
        elif outcome is PlaceOutcome.LOST:
            self._lost.lose(caller.address, took_s, self._clock())


class ControlStanding:
    """Everybody is doubted at any time; who sent whole messages before is known."""

    def __init__(self, max_known: int) -> None:
        """Of connections."""
        self._heard = HeardBefore(max_known)

    def is_known(self, caller: Caller) -> bool:
        """See HeardBefore."""
        return self._heard.spend(caller)

    def is_doubted(self, caller: Caller) -> bool:
        """A message takes no time."""
        return True

    def settle(self, caller: Caller, outcome: PlaceOutcome, took_s: float) -> None:
        """See HeardBefore."""
        if outcome is PlaceOutcome.WHOLE:
            self._heard.note(caller)
