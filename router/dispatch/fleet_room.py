"""Whether the fleet has room for one more request: a seat and blocks at a decode worker, and a turn
at who computes its prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.identity import Role
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.worker_room import HeldRoom, Need


@dataclass(slots=True, eq=False)
class Wanted:
    """What a request needs of the fleet."""

    need: Need = field(default_factory=Need)
    is_cached: Callable[[], bool] = lambda: False
    """Whether a decode worker has its prompt, so that nobody need compute it. Asked at most once,
    and only where no turn is free."""


class FleetRoom:
    """Of one router. All calls from the event loop."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._num_granted = 0
        """That have a turn, and are not at their workers yet."""
        self.free_in_s: float | None = None
        """After `take` said no: when a turn may come free, if nothing is heard before."""

    def take(self, wanted: Wanted) -> HeldRoom | None:
        """Its part of a worker; None: there is no room now. Where no decode worker is there it
        holds nothing: the request waits for one elsewhere."""
        self.free_in_s = None
        decode = self._fleet.ready(Role.DECODE)
        found = next((item for item in decode if item.room.has(wanted.need)), None)
        if decode and (found is None or not self._has_turn(wanted, decode)):
            return None
        self._num_granted += 1
        return HeldRoom(wanted.need, None if found is None else found.room)

    def is_used(self) -> None:
        """One that was granted is at its workers, or goes nowhere."""
        self._num_granted -= 1

    def _has_turn(self, wanted: Wanted, decode: list[FleetMember]) -> bool:
        computing = self._fleet.ready(Role.PREFILL) or decode
        found = [free_in_ms(item) for item in computing]
        if found.count(0.0) > self._num_granted:
            return True
        times_ms = [ms for ms in found if ms]
        self.free_in_s = min(times_ms) / 1000 if times_ms else None
        is_cached = wanted.is_cached()
        wanted.is_cached = lambda: is_cached
        return is_cached


def free_in_ms(item: FleetMember) -> float | None:
    """When a prompt may go there, by what this router gave it; one that does not say how fast it
    computes is not asked. None: when one of its prompts is over."""
    return item.prompts.free_in_ms() if item.load.prefill_token_ms else 0.0
