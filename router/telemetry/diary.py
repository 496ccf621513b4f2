"""What has happened to a fleet, for whoever asks afterwards: the last thousand events.

What happens again to the same subject for the same cause within BURST_S is one event with a count,
and comes to the end of the list: so a thousand refusals push nothing else out.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

from cluster.deadline import Clock

MAX_EVENTS = 1000
BURST_S = 10.0
MAX_CAUSE_CHARS = 300


class Happening(StrEnum):
    """What an event is about."""

    JOINED = "joined"
    LEFT = "left"
    """It said goodbye."""
    LOST = "lost"
    """It fell silent, or its session broke."""
    RESTARTED = "restarted"
    """Another process came under its id, or its supervisor says so."""
    CONNECTED = "connected"
    RESTED = "rested"
    """Its work failed: others are preferred for a while."""
    WELL = "well"
    """Its work succeeds again."""
    ENDING = "ending"
    """It was told to end, and says so."""
    CORDONED = "cordoned"
    DRAINING = "draining"
    """By an operator."""
    UNCORDONED = "uncordoned"
    MOVED = "moved"
    """Answers went on with another worker."""
    RETRIED = "retried"
    """Requests without a token did."""
    PREEMPTED = "preempted"
    """Requests gave their place to a higher class."""
    REFUSED = "refused"
    """Requests, at the door."""
    GIVEN_UP = "given up"
    """A step of --degrade is in force."""
    SCALED = "scaled"
    PLANNED = "planned"
    """What a planner does, would do, or was refused; and why."""
    HANDED_ON = "handed on"
    """Others took over what a worker has cached; or why they did not."""
    STORE_AWAY = "store away"
    STORE_BACK = "store back"


@dataclass(slots=True)
class FleetEvent:
    """Times in seconds since 1970."""

    number: int
    at_s: float
    first_at_s: float
    kind: Happening
    subject: str
    """A worker's id, a class, a pool; empty: the fleet."""
    cause: str
    count: int = 1


class Diary:
    """Of one router. From the event loop only. `clock`: seconds since 1970, as logs have them."""

    def __init__(self, clock: Clock = time.time, *, max_events: int = MAX_EVENTS) -> None:
        self._clock = clock
        self._max_events = max_events
        self._numbers = count(1)
        self._events: OrderedDict[int, FleetEvent] = OrderedDict()
        """By their numbers, which grow."""
        self._bursts: dict[tuple[Happening, str, str], FleetEvent] = {}
        self.last = 0
        """Number of the newest."""

    def note(self, kind: Happening, subject: str = "", cause: str = "") -> None:
        """It has happened now."""
        now_s, cause = self._clock(), cause[:MAX_CAUSE_CHARS]
        self.last = next(self._numbers)
        what = (kind, subject, cause)
        event = self._bursts.get(what)
        if event is not None and 0 <= now_s - event.at_s < BURST_S:
            del self._events[event.number]
            event.number, event.at_s = self.last, now_s
            event.count += 1
        else:
            event = FleetEvent(self.last, now_s, now_s, kind, subject, cause)
            self._bursts[what] = event
        self._events[event.number] = event
        if len(self._events) > self._max_events:
            self._forget_oldest()

    def given_up(self, steps: str) -> None:
        """Of --degrade, those in force; empty: none any more."""
        self.note(Happening.GIVEN_UP, cause=steps or "nothing any more")

    def store_is(self, is_there: bool) -> None:
        """What several routers share has come, or gone."""
        kind = Happening.STORE_BACK if is_there else Happening.STORE_AWAY
        self.note(kind, "store", "" if is_there else "this router goes by what it knows")

    def after(self, number: int, most: int) -> list[FleetEvent]:
        """The newest of those that happened after that one, oldest first."""
        found = list[FleetEvent]()
        for event in reversed(self._events.values()):
            if event.number <= number or len(found) == most:
                break
            found.append(event)
        return found[::-1]

    def _forget_oldest(self) -> None:
        _, event = self._events.popitem(last=False)
        what = (event.kind, event.subject, event.cause)
        if self._bursts.get(what) is event:
            del self._bursts[what]
