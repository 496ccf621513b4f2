"""Orders about adapters that stand: a worker that joins later is told them as well.

given, and done by a worker -> stands -> another order about the name is given
                                '------> a worker that has done it says otherwise: its files have
                                         changed since, or another router was ordered

A router that starts anew knows of none; routers of one fleet keep those that each was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cluster.adapter import OfferedAdapter
from cluster.deadline import Clock
from cluster.identity import WorkerKey
from protos.worker_pb2 import LoadAdapterRequest, UnloadAdapterRequest

MAX_STANDING: Final = 1024
"""Names that orders are kept of; the oldest go first."""
SAYS_SO_AFTER_S: Final = 10.0
"""A worker's beats say what it has done at the latest after so long."""

AdapterOrder = LoadAdapterRequest | UnloadAdapterRequest


@dataclass(slots=True, eq=False)
class StandingOrder:
    """One order, and who has done it."""

    request: AdapterOrder
    done: dict[WorkerKey, tuple[str, float]] = field(default_factory=dict)
    """The digest that the name stands for there, empty: none; and when it was done, seconds."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What a worker told, and digests by name."""

    told: tuple[OfferedAdapter, ...]
    by_name: dict[str, str]

    @classmethod
    def of(cls, told: tuple[OfferedAdapter, ...]) -> _Said:
        return cls(told, {each.adapter.name: each.adapter.digest for each in told})


class StandingAdapters:
    """Of one router. `clock` in seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._orders: dict[str, StandingOrder] = {}
        self._said: dict[WorkerKey, _Said] = {}

    def __bool__(self) -> bool:
        return bool(self._orders)

    @property
    def names(self) -> list[str]:
        """In the order in which they were given."""
        return list(self._orders)

    def of(self, name: str) -> StandingOrder | None:
        """None: none stands."""
        return self._orders.get(name)

    def put(self, order: StandingOrder) -> StandingOrder | None:
        """It stands, in place of the one that is returned."""
        before = self._orders.pop(order.request.name, None)
        self._orders[order.request.name] = order
        if len(self._orders) > MAX_STANDING:
            del self._orders[next(iter(self._orders))]
        return before

    def undo(self, order: StandingOrder, before: StandingOrder | None) -> None:
        """No worker has done it, and so the one before stands; but where a later one does."""
        name = order.request.name
        if self._orders.get(name) is not order:
            return
        del self._orders[name]
        if before is not None:
            self._orders[name] = before

    def note_done(self, order: StandingOrder, worker: WorkerKey, digest: str) -> None:
        """That worker has."""
        order.done[worker] = digest, self._clock()

    def look(self, told: Mapping[WorkerKey, tuple[OfferedAdapter, ...]]) -> list[str]:
        """Names whose orders stand no more, by what the workers that are there tell."""
        before = self._said
        self._said = {
            key: said
            if (said := before.get(key)) is not None and said.told is adapters
            else _Said.of(adapters)
            for key, adapters in told.items()
        }
        over = [name for name, order in self._orders.items() if self._is_over(name, order)]
        for name in over:
            del self._orders[name]
        return over

    def _is_over(self, name: str, order: StandingOrder) -> bool:
        for key in order.done.keys() - self._said.keys():
            del order.done[key]
        latest_s = self._clock() - SAYS_SO_AFTER_S
        return any(
            done_s <= latest_s and self._said[key].by_name.get(name, "") != digest
            for key, (digest, done_s) in order.done.items()
        )
