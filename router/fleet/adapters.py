"""Which adapters the fleet has, by the names that clients ask for.

A name may stand for different versions while workers load a new one, each at its own time. Requests
get the one that most decode workers have when they are sent, of equals the one that came later; one
that has begun goes on with its own.

A name is gone once a worker that had it says that it has it no more. Where all that had it have
left instead, it is still a model for a while: its requests wait for a worker, as the base model's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from cluster.adapter import Adapter
from cluster.deadline import Clock
from cluster.identity import Role, WorkerKey
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember

REMEMBERED_S: Final = 600.0
"""Of a name whose workers have all left: longer than one takes to start anew and load its model."""


@dataclass(frozen=True, slots=True)
class _Left:
    """A name whose workers have all left."""

    adapter: Adapter
    until_s: float


class FleetAdapters:
    """Of one router. From the event loop; looks anew when the fleet has changed."""

    def __init__(self, fleet: Fleet, clock: Clock) -> None:
        self._fleet, self._clock = fleet, clock
        self._chosen: dict[str, Adapter] = {}
        self._is_stale = True
        self._first_seen: dict[Adapter, int] = {}
        self._num_seen = 0
        self._holders: dict[str, set[WorkerKey]] = {}
        """By name: at the last look."""
        self._left: dict[str, _Left] = {}
        fleet.changes.watch(self._forget)

    def find(self, name: str) -> Adapter | None:
        """What the name stands for; None: for nothing. Whether a worker is there that has it, a
        request finds out when it is sent."""
        return self._table().get(name) or self._lately().get(name)

    def offered(self, name: str) -> Adapter | None:
        """What a request for that name is sent with; None: no decode worker that takes work has
        it."""
        return self._table().get(name)

    def all(self) -> list[Adapter]:
        """By name."""
        offered = self._table()
        table = self._lately() | offered
        return [table[name] for name in sorted(table)]

    def _table(self) -> dict[str, Adapter]:
        if self._is_stale:
            self._chosen, self._is_stale = self._look(), False
        return self._chosen

    def _look(self) -> dict[str, Adapter]:
        members = self._fleet.open(Role.DECODE)
        self._note_left(members)
        held = Counter(item.adapter for member in members for item in member.state.adapters)
        seen = {adapter: at for adapter, at in self._first_seen.items() if adapter in held}
        for adapter in held:
            if adapter not in seen:
                self._num_seen += 1
                seen[adapter] = self._num_seen
        self._first_seen = seen
        chosen: dict[str, Adapter] = {}
        for adapter in sorted(held, key=lambda each: (held[each], seen[each])):
            chosen[adapter.name] = adapter
        return chosen

    def _note_left(self, members: list[FleetMember]) -> None:
        """Which names have no worker any more, and for want of workers only."""
        holders: dict[str, set[WorkerKey]] = {}
        for member in members:
            for item in member.state.adapters:
                holders.setdefault(item.adapter.name, set()).add(member.key)
        there = {member.key for member in members}
        for name in self._holders.keys() - holders.keys():
            if not self._holders[name] & there:
                self._left[name] = _Left(self._chosen[name], self._clock() + REMEMBERED_S)
        for name in holders:
            self._left.pop(name, None)
        self._holders = holders

    def _lately(self) -> dict[str, Adapter]:
        now_s = self._clock()
        self._left = {name: left for name, left in self._left.items() if now_s < left.until_s}
        return {name: left.adapter for name, left in self._left.items()}

    def _forget(self) -> None:
        self._is_stale = True
