"""Whether the fleet has room for one more request: a seat and blocks at a decode worker, and a turn
at who computes its prompt. Asked with --reserve-room alone.
"""

from __future__ import annotations

from typing import Protocol

from cluster.identity import Role
from router.dispatch.outlook import Outlook
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.worker_room import NOTHING, HeldRoom, Need


class Prospect(Protocol):
    """What would become of a request that waits. Looked into only where it has to."""

    def is_local(self) -> bool:
        """True where nobody but a decode worker would compute the prompt."""
        ...

    def outlook(self) -> Outlook | None:
        """Once it has a place; None: nothing can be foretold. Raises what it would be told then."""
        ...


class Room(Protocol):
    """What the fleet can hold."""

    def take(self, need: Need, prospect: Prospect) -> HeldRoom | None:
        """A part of it; None: not now."""
        ...

    @property
    def free_in_s(self) -> float | None:
        """After a no: when there may be room, if nothing is heard before."""
        ...

    def is_used(self) -> None:
        """Once for each part: its request is at its workers, or goes nowhere."""
        ...


class Unreserved:
    """A Room that has no end: requests wait at the workers."""

    free_in_s = None

    def take(self, need: Need, prospect: Prospect) -> HeldRoom:
        """Holds nothing, wherever it moves."""
        return HeldRoom(NOTHING, None)

    def is_used(self) -> None:
        """Nothing was counted."""


class FleetRoom:
    """Of one router. All calls from the event loop. Who takes work is looked up when the fleet has
    changed, and not for every request."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._decode: list[FleetMember] = []
        self._prefill: list[FleetMember] = []
        self._num_granted = 0
        """That have a turn, and are not at their workers yet."""
        self.free_in_s: float | None = None
        """After `take` said no: when a turn may come free, if nothing is heard before."""
        fleet.changes.watch(self._look_up)

    def take(self, need: Need, prospect: Prospect) -> HeldRoom | None:
        """Its part of a worker; None: there is no room now. Where no decode worker is there it
        holds nothing: the request waits for one elsewhere."""
        self.free_in_s = None
        is_there = False
        for item in self._decode:
            if item.takes_work and not item.cooldown.is_resting:
                is_there = True
                if item.room.has(need):
                    return self._granted(need, item) if self._has_turn(prospect) else None
        return None if is_there else self._granted(need, None)

    def is_used(self) -> None:
        """One that was granted is at its workers, or goes nowhere."""
        self._num_granted -= 1

    def _granted(self, need: Need, item: FleetMember | None) -> HeldRoom:
        self._num_granted += 1
        return HeldRoom(need, None if item is None else item.room)

    def _has_turn(self, prospect: Prospect) -> bool:
        """Each that is granted takes the turn of one worker that wants a prompt."""
        computing = [item for item in self._prefill if not item.cooldown.is_resting]
        num_free, soonest_ms = 0, None
        for item in computing or self._decode:
            free_ms = free_in_ms(item)
            if free_ms == 0.0:
                num_free += 1
                if num_free > self._num_granted:
                    return True
            elif free_ms is not None and (soonest_ms is None or free_ms < soonest_ms):
                soonest_ms = free_ms
        self.free_in_s = None if soonest_ms is None else soonest_ms / 1000
        return prospect.is_local()

    def _look_up(self) -> None:
        self._decode = self._fleet.open(Role.DECODE)
        self._prefill = self._fleet.open(Role.PREFILL)


def free_in_ms(item: FleetMember) -> float | None:
    """When a prompt may go there, by what this router gave it; one that does not say how fast it
    computes is not asked. None: when one of its prompts is over."""
    return item.prompts.free_in_ms() if item.load.prefill_token_ms else 0.0
