"""Which adapters the fleet has, by the names that clients ask for.

A name may stand for different versions while workers load a new one, each at its own time. New
requests get the one that most workers have that could answer them, of equals the one that came
later; a request that has begun goes on with its own. Decode workers answer with text, prefill
workers that pool with embeddings and scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cluster.adapter import Adapter
from cluster.identity import Role
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember


class FleetAdapters:
    """Of one router. From the event loop; looks anew when the fleet has changed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._of_text = _Versions()
        self._of_pooling = _Versions()
        self._is_current = False
        fleet.changes.watch(self._forget)

    def find(self, name: str) -> Adapter | None:
        """What a new request for text by that name gets; None: no decode worker that takes work has
        it."""
        self._look()
        return self._of_text.chosen.get(name)

    def find_pooling(self, name: str) -> Adapter | None:
        """The same for an embedding or a score, of prefill workers that pool."""
        self._look()
        return self._of_pooling.chosen.get(name)

    def all(self) -> list[Adapter]:
        """By name."""
        self._look()
        known = self._of_pooling.chosen | self._of_text.chosen
        return [known[name] for name in sorted(known)]

    def _look(self) -> None:
        if not self._is_current:
            self._is_current = True
            self._of_text.look(self._fleet.open(Role.DECODE))
            self._of_pooling.look(i for i in self._fleet.open(Role.PREFILL) if i.pooling)

    def _forget(self) -> None:
        self._is_current = False


class _Versions:
    """Of those that could answer one kind of request."""

    def __init__(self) -> None:
        self.chosen: dict[str, Adapter] = {}
        self._first_seen: dict[Adapter, int] = {}
        self._num_seen = 0

    def look(self, members: Iterable[FleetMember]) -> None:
        """What they have now."""
        held = Counter(item.adapter for member in members for item in member.state.adapters)
        seen = {adapter: at for adapter, at in self._first_seen.items() if adapter in held}
        for adapter in held:
            if adapter not in seen:
                self._num_seen += 1
                seen[adapter] = self._num_seen
        self._first_seen = seen
        self.chosen = {}
        for adapter in sorted(held, key=lambda each: (held[each], seen[each])):
            self.chosen[adapter.name] = adapter
