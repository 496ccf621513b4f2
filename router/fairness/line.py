"""Who waits, and who is next: class before class, tenant by share, deadline by deadline.

    class   the highest that waits; one that was passed over MAX_PASSED times goes first, once
    tenant  the smallest counter of its class: see Shares
    ticket  the earliest deadline of its tenant
    aged    whoever has waited long, the one that came first, when MAX_PASSED others have passed it

So nobody starves: a class has one place in MAX_PASSED + 1 at least, a tenant its share of those;
and of those who have waited long the n-th that came has its place within n * (MAX_PASSED + 1).
Pure: places, clocks and futures are its owner's.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain, count, islice, zip_longest
from operator import attrgetter

from router.fairness.shares import Shares

MAX_PASSED = 16
"""Places that go past a class that waits."""


@dataclass(slots=True, eq=False, kw_only=True)
class Ticket:
    """Of one request that waits."""

    tenant: str
    level: int
    """Of its class; 0 is served first."""
    weight: float
    due_s: float
    """By when it wants its first token."""
    came_s: float = 0.0
    is_gone: bool = field(default=False, init=False)

    @property
    def is_aged(self) -> bool:
        """True from when it has waited long; those that came before it have then, too."""
        return False


_due_s = attrgetter("due_s")
_Entry = tuple[float, int, Ticket]


class _Class:
    """The tickets of one class."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.num_waiting = 0
        self.num_passed = 0
        self._tenants: dict[str, list[_Entry]] = {}
        """Heaps; tickets that are gone stay until they come up, or are the half of a heap."""
        self._live: dict[str, int] = {}

    def add(self, entry: _Entry) -> None:
        tenant = entry[2].tenant
        if tenant not in self._live:
            self.shares.came(tenant)
            self._tenants[tenant] = []
            self._live[tenant] = 0
        heapq.heappush(self._tenants[tenant], entry)
        self._live[tenant] += 1
        self.num_waiting += 1

    def remove(self, ticket: Ticket) -> None:
        self.num_waiting -= 1
        tenant = ticket.tenant
        self._live[tenant] -= 1
        heap = self._tenants[tenant]
        if not self._live[tenant]:
            del self._live[tenant], self._tenants[tenant]
        elif len(heap) > 2 * self._live[tenant]:
            self._tenants[tenant] = _those_that_wait(heap)

    def first(self) -> Ticket:
        heap = self._tenants[self.shares.next_of(self._live)]
        while heap[0][2].is_gone:
            heapq.heappop(heap)
        return heap[0][2]

    def in_order(self, most: int) -> Iterator[Ticket]:
        """So many of each tenant, tenants in turns."""
        tenants = self.shares.in_order(self._live)
        soonest = [nsmallest(most, self.of(tenant), key=_due_s) for tenant in tenants]
        for turn in zip_longest(*soonest):
            yield from (ticket for ticket in turn if ticket is not None)

    def last(self, newcomer: Ticket | None) -> Ticket:
        """The one due last of whoever has most waiting for its weight; a newcomer of this class is
        counted, and goes where its tenant has as much as any."""
        lengths = {
            tenant: num_live / self._tenants[tenant][0][2].weight
            for tenant, num_live in self._live.items()
        }
        longest = max(lengths, key=lambda tenant: lengths[tenant])
        if newcomer is not None:
            own = (self._live.get(newcomer.tenant, 0) + 1) / newcomer.weight
            if longest == newcomer.tenant or own >= lengths[longest]:
                return newcomer
        return max(self.of(longest), key=lambda ticket: ticket.due_s)

    def num_by_tenant(self) -> dict[str, int]:
        """Only of tenants that have some."""
        return dict(self._live)

    def of(self, tenant: str) -> list[Ticket]:
        return [entry[2] for entry in self._tenants.get(tenant, ()) if not entry[2].is_gone]

    def num_before(self, ticket: Ticket) -> float:
        """How many will be served before it: its tenant's that are due sooner, and of each other
        tenant as many as its weight has meanwhile, and as it has."""
        own = sum(other.due_s <= ticket.due_s for other in self.of(ticket.tenant))
        turns = (own + 1) / ticket.weight
        others = 0.0
        for tenant, num_live in self._live.items():
            if tenant != ticket.tenant:
                others += min(num_live, turns * self._tenants[tenant][0][2].weight)
        return own + others


class Line:
    """Of one router: it has a class for each level."""

    def __init__(
        self, num_levels: int, shares: Callable[[int], Shares] = lambda level: Shares()
    ) -> None:
        """`shares`: of each class, by its level."""
        self._classes = [_Class(shares(level)) for level in range(num_levels)]
        self._order = count()
        self._by_age: list[_Entry] = []
        """A heap; tickets that are gone stay as those of tenants do."""
        self._num_past_aged = 0
        self.num_waiting = 0
        """Over all classes."""

    def num_by_tenant(self, level: int) -> dict[str, int]:
        """That wait in one class, of each tenant that has some."""
        return self._classes[level].num_by_tenant()

    def shares_of(self, level: int) -> Shares:
        """Of one class."""
        return self._classes[level].shares

    def add(self, ticket: Ticket) -> None:
        """Once for each."""
        self.num_waiting += 1
        order = next(self._order)
        self._classes[ticket.level].add((ticket.due_s, order, ticket))
        heapq.heappush(self._by_age, (ticket.came_s, order, ticket))

    def remove(self, ticket: Ticket) -> None:
        """Out of turn, or because it is served; idempotent."""
        if not ticket.is_gone:
            ticket.is_gone = True
            self.num_waiting -= 1
            self._classes[ticket.level].remove(ticket)
            if len(self._by_age) > 2 * self.num_waiting:
                self._by_age = _those_that_wait(self._by_age)

    def aged(self) -> Ticket | None:
        """Whose turn it is by its age, whatever its class; it stays."""
        return self._oldest_aged() if self._num_past_aged >= MAX_PASSED else None

    def first(self) -> Ticket | None:
        """Who is next; it stays."""
        if not self.num_waiting:
            return None
        level = self._next_level()
        return None if level is None else self._classes[level].first()

    def in_order(self, most: int) -> list[Ticket]:
        """So many, about as they will be served: those that pass the first are served as others
        are."""
        waiting = chain.from_iterable(each.in_order(most) for each in self._classes)
        return list(islice(waiting, most))

    def serve(self, ticket: Ticket) -> None:
        """It has a place; classes below it have been passed over."""
        aged = self._oldest_aged()
        self._num_past_aged = 0 if aged in (None, ticket) else self._num_past_aged + 1
        self.remove(ticket)
        for below in self._classes[ticket.level + 1 :]:
            below.num_passed += below.num_waiting > 0
        served = self._classes[ticket.level]
        served.num_passed = 0
        served.shares.served(ticket.tenant)

    def last(self, newcomer: Ticket) -> Ticket:
        """Whom to turn away where there is room for all but one: of the lowest class, and in the
        newcomer's own nobody of its tenant but itself. It is not added yet."""
        for level in range(len(self._classes) - 1, newcomer.level, -1):
            if self._classes[level].num_waiting:
                return self._classes[level].last(None)
        own = self._classes[newcomer.level]
        return own.last(newcomer) if own.num_waiting else newcomer

    def num_before(self, ticket: Ticket) -> float:
        """How many will probably be served before one that is not added yet."""
        above = sum(each.num_waiting for each in self._classes[: ticket.level])
        return above + self._classes[ticket.level].num_before(ticket)

    def _next_level(self) -> int | None:
        waiting = [level for level, each in enumerate(self._classes) if each.num_waiting]
        passed = [level for level in waiting if self._classes[level].num_passed >= MAX_PASSED]
        return next(iter(passed or waiting), None)

    def _oldest_aged(self) -> Ticket | None:
        while self._by_age and self._by_age[0][2].is_gone:
            heapq.heappop(self._by_age)
        oldest = self._by_age[0][2] if self._by_age else None
        return oldest if oldest is not None and oldest.is_aged else None


def _those_that_wait(heap: list[_Entry]) -> list[_Entry]:
    waiting = [entry for entry in heap if not entry[2].is_gone]
    heapq.heapify(waiting)
    return waiting
