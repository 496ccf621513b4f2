"""Whether the fleet has room for one more request: a seat and blocks at a decode worker, and a turn
at who computes its prompt. Asked unless --no-reserve-room is said.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Protocol

from cluster.deadline import Clock
from cluster.identity import Role
from router.dispatch.asked import Asked
from router.dispatch.kept_worker import KeptWorker
from router.dispatch.spread_turns import SpreadTurns
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.need import NOTHING, Need
from router.fleet.room_part import RoomPart
from router.fleet.worker_room import CountedPart


class Lack(enum.StrEnum):
    """Why a request waits."""

    PLACES = "as many requests run as --max-running-requests allows"
    SEATS = "no decode worker has a seat for it"
    BLOCKS = "no decode worker with a seat has the KV blocks for it"
    KEPT = "the worker that has room is kept for a request that needs more"
    TURN = "whoever could compute its prompt has others to compute"
    OTHERS_TURN = "its tenant computes at all other workers: a turn is open a moment for others"


class Room(Protocol):
    """What the fleet can hold."""

    lacks: Lack
    """After a no."""
    free_in_s: float | None
    """After a no: when there may be room, if nothing is heard before."""

    @property
    def kept_for(self) -> Asked | None:
        """Whom a worker is kept for."""
        ...

    def take(self, asked: Asked, line_ms: float) -> RoomPart | None:
        """A part of it; None: not now. `line_ms`: how long the line is."""
        ...

    def keep_for(self, asked: Asked) -> None:
        """It is first in line and lacks room: those that pass it do not delay it."""
        ...

    def let_go(self, asked: Asked) -> None:
        """It waits no longer; for each that waited, once."""
        ...

    def is_used(self) -> None:
        """Once for each part: its request is at its workers, or goes nowhere."""
        ...

    def in_vain(self, need: Need) -> frozenset[CountedPart]:
        """Parts that make no room for it: their workers have that already."""
        ...


class Unreserved:
    """A Room that has no end: requests wait at the workers."""

    lacks = Lack.PLACES
    free_in_s: float | None = None
    kept_for: Asked | None = None

    def take(self, asked: Asked, line_ms: float) -> RoomPart:
        """Of nothing, wherever it moves."""
        return RoomPart(NOTHING, None)

    def keep_for(self, asked: Asked) -> None:
        """Nobody lacks room."""

    def let_go(self, asked: Asked) -> None:
        """Nothing was kept."""

    def is_used(self) -> None:
        """Nothing was counted."""

    def in_vain(self, need: Need) -> frozenset[CountedPart]:
        """Nothing was reserved."""
        return frozenset()


class FleetRoom:
    """Of one router. All calls from the event loop. Who takes work is looked up when the fleet has
    changed, and not for every request."""

    def __init__(self, fleet: Fleet, clock: Clock, pooling: str = "") -> None:
        """`pooling`: the room of prefill workers that pool so, for prompts that they answer; empty:
        of decode workers, and of who computes prompts for them."""
        self._fleet, self._pooling = fleet, pooling
        self._clock = clock
        self._decode: list[FleetMember] = []
        """Who answers."""
        self._prefill: list[FleetMember] = []
        self._num_granted = 0
        """That have a turn, and are not at their workers yet."""
        self._kept: KeptWorker | None = None
        """For one of those who wait."""
        self._spread = SpreadTurns(clock)
        self.lacks = Lack.PLACES
        self.free_in_s: float | None = None
        fleet.changes.watch(self._look_up)

    @property
    def kept_for(self) -> Asked | None:
        """See Room."""
        return None if self._kept is None else self._kept.asked

    def take(self, asked: Asked, line_ms: float) -> RoomPart | None:
        """See Room. Where all rest, they are judged as if none did; where no decode worker is there
        it is a part of none: the request waits for one elsewhere."""
        self.free_in_s = None
        self.lacks = Lack.PLACES
        self._spread.asks(asked)
        if self._kept is not None and not self._kept.is_of_use:
            self._kept = None
        trusted = (item for item in self._decode if item.takes_work and item.cooldown.admits)
        part = self._part_of(trusted, asked, line_ms)
        if part is None and self.lacks is Lack.PLACES:  # nobody was there
            open_ones = (item for item in self._decode if item.takes_work)
            part = self._part_of(open_ones, asked, line_ms)
        if part is None and self.lacks is Lack.PLACES:
            part = self._granted(asked.need, None)
        return part

    def keep_for(self, asked: Asked) -> None:
        """See Room. Whose worker is kept already has it until it waits no longer, or one of a
        higher class needs as much."""
        if self._kept is None or self._kept.is_below(asked):
            items = [item for item in self._decode if item.takes_work]
            self._kept = KeptWorker.of(asked, items, self._clock) or self._kept

    def let_go(self, asked: Asked) -> None:
        """See Room."""
        if self._kept is not None and self._kept.asked is asked:
            self._kept = None

    def is_used(self) -> None:
        """See Room."""
        self._num_granted -= 1

    def in_vain(self, need: Need) -> frozenset[CountedPart]:
        """See Room."""
        roomy = (item.room for item in self._decode if item.room.has(need))
        return frozenset().union(*(room.parts for room in roomy))

    def _part_of(
        self, items: Iterable[FleetMember], asked: Asked, line_ms: float
    ) -> RoomPart | None:
        """Of the first that has room; None: says what they lack, or nothing where none is there."""
        for item in items:
            cached_tokens = self._lets_in(item, asked)
            if cached_tokens is None:
                continue
            has_turn = self._has_turn(asked)
            if not has_turn and not self._may_be_local(asked, line_ms):
                return None
            if self._kept is not None:
                self._kept.passed(asked, item)
            part = self._granted(asked.need, item, cached_tokens)
            part.is_local = not has_turn
            return part
        return None

    def _lets_in(self, item: FleetMember, asked: Asked) -> int | None:
        """Tokens of the prompt that a worker with room for the rest is counted on to have; None:
        says what it lacks."""
        need = asked.need
        if not item.room.has_seats(need):
            self._lacks_at_least(Lack.SEATS)
        elif self._kept is not None and not self._kept.admits(asked, item):
            self._lacks_at_least(Lack.KEPT)
        elif item.room.has(need):
            return 0
        else:
            cached_tokens = asked.prospect.cached_tokens(item.key)
            if cached_tokens and item.room.has(need, cached_tokens):
                return cached_tokens
            self.lacks = Lack.BLOCKS
        return None

    def _lacks_at_least(self, lack: Lack) -> None:
        """Unless it is known of another worker that it has a seat."""
        if self.lacks in (Lack.PLACES, Lack.SEATS):
            self.lacks = lack

    def _granted(self, need: Need, item: FleetMember | None, cached_tokens: int = 0) -> RoomPart:
        self._num_granted += 1
        return RoomPart(need, None if item is None else item.room, cached_tokens)

    def _has_turn(self, asked: Asked) -> bool:
        """Each that is granted takes the turn of one worker that wants a prompt. Else says what it
        lacks."""
        items = self._computing or self._decode
        if self._num_free(items) <= self._num_granted:
            self.lacks = Lack.TURN
            return asked.prospect.is_local(0.0)
        held_back_ms = 0.0 if self._num_granted else self._spread.held_back_ms(asked, items)
        if not held_back_ms:
            return True
        self.lacks, self.free_in_s = Lack.OTHERS_TURN, held_back_ms / 1000
        return False

    def _may_be_local(self, asked: Asked, line_ms: float) -> bool:
        """True where no prefill worker has a turn for it, and waiting for one costs more than what
        a decode worker, which has one, loses."""
        if not line_ms or not self._computing or self.lacks is Lack.OTHERS_TURN:
            return False
        num_free = self._num_free([*self._computing, *self._decode])
        return num_free > self._num_granted and asked.prospect.is_local(line_ms)

    @property
    def _computing(self) -> list[FleetMember]:
        """Prefill workers that are trusted with prompts."""
        return [item for item in self._prefill if not item.cooldown.is_resting]

    def _num_free(self, items: list[FleetMember]) -> int:
        """Workers that want a prompt, as far as it matters; else says when one does."""
        num_free, soonest_ms = 0, None
        for item in items:
            free_ms = free_in_ms(item)
            if free_ms == 0.0:
                num_free += 1
                if num_free > self._num_granted:
                    return num_free
            elif free_ms is not None and (soonest_ms is None or free_ms < soonest_ms):
                soonest_ms = free_ms
        self.free_in_s = None if soonest_ms is None else soonest_ms / 1000
        return num_free

    def _look_up(self) -> None:
        if self._pooling:
            self._decode = self._fleet.served(Role.PREFILL, self._pooling)
        else:
            self._decode = self._fleet.served(Role.DECODE)
            self._prefill = self._fleet.served(Role.PREFILL)
        if self._kept is not None and not self._kept.is_one_of(self._decode):
            self._kept = None


def free_in_ms(item: FleetMember) -> float | None:
    """When a prompt may go there, by what this router gave it; one that does not say how fast it
    computes is not asked. None: when one of its prompts is over."""
    return item.prompts.free_in_ms() if item.load.prefill_token_ms else 0.0
