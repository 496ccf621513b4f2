"""Whether routers believe the same of a worker's cache, at the same point of its events.

    both know it at one point -> equal: they agree
                              -> unequal for LASTING_S without having been equal: they disagree

Routers hear events at different times, and what one has just served it knows before they tell: so
beliefs are compared at equal points only, and differences that pass are none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from cluster.identity import WorkerKey
from router.sharing.word import CacheMark, WorkerWord

LASTING_S = 10.0
MAX_REMEMBERED = 256
"""Points of each worker's events: 13 seconds of ticks."""

Pair = tuple[str, WorkerKey]
"""Another router, and the worker of which it believes something else."""


class Agreement:
    """Of one router with all others."""

    def __init__(self) -> None:
        self._own: dict[WorkerKey, OrderedDict[int, int]] = {}
        """By worker: digests by the number of the event."""
        self._unequal_since_s: dict[Pair, float] = {}
        self._disagreeing: tuple[Pair, ...] = ()

    @property
    def disagreeing(self) -> tuple[Pair, ...]:
        """As of the last comparison."""
        return self._disagreeing

    def believed(self, marks: dict[WorkerKey, CacheMark]) -> None:
        """What this router believes now, of all workers whose caches it knows."""
        for worker in self._own.keys() - marks.keys():
            del self._own[worker]
        for worker, mark in marks.items():
            points = self._own.setdefault(worker, OrderedDict())
            points[mark.sequence] = mark.digest
            if len(points) > MAX_REMEMBERED:
                points.popitem(last=False)

    def compare(self, words: Iterable[tuple[str, WorkerWord]], now_s: float) -> list[Pair]:
        """Looks at what others believe. Pairs that have begun to disagree."""
        found: dict[Pair, bool | None] = {
            (name, word.key): self._is_equal(word) for name, word in words if word.cache
        }
        unequal = self._unequal_since_s
        self._unequal_since_s = {
            pair: unequal.get(pair, now_s)
            for pair, is_equal in found.items()
            if is_equal is False or (is_equal is None and pair in unequal)
        }
        before = self._disagreeing
        self._disagreeing = tuple(self._lasting(now_s))
        return [pair for pair in self._disagreeing if pair not in before]

    def _is_equal(self, word: WorkerWord) -> bool | None:
        """None where this router has not been at that point."""
        own = self._own.get(word.key)
        if own is None or word.cache is None or word.cache.sequence not in own:
            return None
        return own[word.cache.sequence] == word.cache.digest

    def _lasting(self, now_s: float) -> list[Pair]:
        return [p for p, since_s in self._unequal_since_s.items() if now_s - since_s >= LASTING_S]
