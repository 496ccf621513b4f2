"""Who of a pool has a place in the fleet, and who is kept warm for the next that gets free. Pure.

come -> spare --fill--> in place
          |                |
          '----- gone <----'        it ends, or takes no new requests: its place is free
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WarmWorker:
    """One process that is loaded; the next one of its name is another."""

    name: str
    pool: str
    pid: int
    address: str


class Places:
    """Of one pool."""

    def __init__(self, num_places: int) -> None:
        self._num_places = num_places
        self._in_place: dict[str, WarmWorker] = {}
        self._spares: dict[str, WarmWorker] = {}
        self._serving: set[str] = set()

    @property
    def spares(self) -> tuple[WarmWorker, ...]:
        """Who has come first, first."""
        return tuple(self._spares.values())

    def resize(self, num_places: int) -> None:
        """Whoever has a place keeps it, until it goes."""
        self._num_places = num_places

    def come(self, worker: WarmWorker) -> None:
        """It is loaded, in place of whoever had its name before."""
        self.gone(worker.name)
        self._spares[worker.name] = worker

    def gone(self, name: str) -> None:
        """Idempotent."""
        self._in_place.pop(name, None)
        self._spares.pop(name, None)
        self._serving.discard(name)

    def fill(self) -> list[WarmWorker]:
        """Those who get the free places; they have them from now on."""
        num_free = max(0, self._num_places - len(self._in_place))
        chosen = list(self._spares.values())[:num_free]
        for worker in chosen:
            self._in_place[worker.name] = self._spares.pop(worker.name)
        return chosen

    def serves(self, worker: WarmWorker) -> None:
        """It has said that it takes requests."""
        if self.has_placed(worker):
            self._serving.add(worker.name)

    @property
    def all_serve(self) -> bool:
        """Every place is taken by one that takes requests."""
        return len(self._serving) >= self._num_places

    def has_placed(self, worker: WarmWorker) -> bool:
        """That very process."""
        return self._in_place.get(worker.name) == worker
