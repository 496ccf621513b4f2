"""Whether the fleet has room for one more request: a seat and blocks at a decode worker, and a turn
at who computes its prompt.

Prompts wait in the router, where shares and classes count, and not at a worker, where they do not:
a worker has one that it computes and one beside it, or a few that are short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.identity import Role
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.worker_room import HeldRoom, Need
from router.pricing.estimates import Estimates

MAX_AHEAD_MS = 50.0
"""Of prompts at a worker that wants one more. A round trip to the router takes 1 to 5 ms, so that
the worker has always the next one; and who comes now waits for no more than this and one prompt."""
MAX_PROMPTS_AHEAD = 2
"""However long they are: one is computed, one waits."""


@dataclass(slots=True, eq=False)
class Wanted:
    """What a request needs of the fleet."""

    need: Need = field(default_factory=Need)
    is_cached: Callable[[], bool] = lambda: False
    """Whether a decode worker has its prompt, so that nobody need compute it. Asked at most once,
    and only where no turn is free."""


class FleetRoom:
    """Of one router. All calls from the event loop."""

    def __init__(self, fleet: Fleet, estimates: Estimates) -> None:
        self._fleet = fleet
        self._estimates = estimates
        self._num_granted = 0
        """That have a turn, and are not at their workers yet."""

    def take(self, wanted: Wanted) -> HeldRoom | None:
        """Its part of a worker; None: there is no room now. Where no decode worker is there it
        holds nothing: the request waits for one elsewhere."""
        decode = self._fleet.ready(Role.DECODE)
        found = next((item for item in decode if item.room.has(wanted.need)), None)
        if decode and (found is None or not self._has_turn(wanted, decode)):
            return None
        self._num_granted += 1
        return HeldRoom(wanted.need, None if found is None else found.room)

    def sent(self) -> None:
        """One that has a turn is at its workers now, or will never be."""
        self._num_granted -= 1

    def _has_turn(self, wanted: Wanted, decode: list[FleetMember]) -> bool:
        computing = self._fleet.ready(Role.PREFILL) or decode
        if any(self._is_free(item) for item in computing):
            return True
        if wanted.is_cached():
            wanted.is_cached = lambda: True
            return True
        wanted.is_cached = lambda: False
        return False

    def _is_free(self, item: FleetMember) -> bool:
        """By what this router gave it; one that does not say how fast it computes is not asked."""
        if not item.load.prefill_token_ms:
            return True
        num_prompts = item.pending_prompts + self._num_granted
        if num_prompts < MAX_PROMPTS_AHEAD:
            return True
        ahead_ms = (
            item.pending_prefill_tokens * self._estimates.prefill.speed_of(item.key).ms_per_token
        )
        return not self._num_granted and ahead_ms < MAX_AHEAD_MS
