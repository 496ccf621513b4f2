"""Which adapters the fleet has, by the names that clients ask for.

A name may stand for different versions while workers load a new one, each at its own time. New
requests get the one that most decode workers have, of equals the one that came later; a request
that has begun goes on with its own.
"""

from __future__ import annotations

from collections import Counter

from cluster.adapter import Adapter
from cluster.identity import Role
from router.fleet.fleet import Fleet


class FleetAdapters:
    """Of one router. From the event loop; looks anew when the fleet has changed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._chosen: dict[str, Adapter] | None = None
        self._first_seen: dict[Adapter, int] = {}
        self._num_seen = 0
        fleet.changes.watch(self._forget)

    def find(self, name: str) -> Adapter | None:
        """What a new request for that name gets; None: no decode worker that takes work has it."""
        return self._table().get(name)

    def all(self) -> list[Adapter]:
        """By name."""
        table = self._table()
        return [table[name] for name in sorted(table)]

    def _table(self) -> dict[str, Adapter]:
        if self._chosen is None:
            self._chosen = self._look()
        return self._chosen

    def _look(self) -> dict[str, Adapter]:
        members = self._fleet.open(Role.DECODE)
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

    def _forget(self) -> None:
        self._chosen = None
