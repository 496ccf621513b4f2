"""A router's own part of limits that the store does not count: it is away, or refuses these.

taken here -> of the limit the part of one router, from what was known of it
counted by the store again -> forgotten; what was let in meanwhile the store hears otherwise
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cluster.deadline import Clock
from router.tenants.limit_store import Charge, MemoryLimits, Shortage
from router.tenants.limits import Left, Limit, Rate, State


class LimitShare:
    """A LimitStore. Limits are held one by one: the store may count some, and refuse others."""

    def __init__(self, clock: Clock, num_routers: int, known: Callable[[str], State]) -> None:
        """`known`: the state of a whole limit, by its key. Each router takes its part of what is
        spent of a budget; who pays a part of a rate's debt at that part of the rate pays as
        long."""
        self._num_routers = num_routers
        self._known = known
        self._limits = MemoryLimits(clock)
        self._held: set[str] = set()

    @property
    def clock(self) -> Clock:
        """See LimitStore."""
        return self._limits.clock

    async def take(
        self, charges: Sequence[Charge], spent: Sequence[Charge] = ()
    ) -> Shortage | None:
        """See LimitStore. They are held from now on."""
        for limit, _ in charges:
            if limit.key not in self._held:
                first, second = self._known(limit.key)
                self._limits.hear({limit.key: (first, second / self._num_routers)})
                self._held.add(limit.key)
        return await self._limits.take(self._parts(charges))

    def settle(self, charges: Sequence[Charge]) -> None:
        """See LimitStore. What is not held is counted elsewhere."""
        self._limits.settle(self._parts([each for each in charges if self.holds(each[0])]))

    def left(self, limit: Limit) -> Left:
        """See LimitStore."""
        return self._limits.left(part_of(limit, self._num_routers))

    def holds(self, limit: Limit) -> bool:
        """True from when it was taken here until it is let go."""
        return limit.key in self._held

    def let_go(self, charges: Sequence[Charge]) -> None:
        """The store has counted these limits."""
        self._held.difference_update(limit.key for limit, _ in charges)

    def _parts(self, charges: Sequence[Charge]) -> list[Charge]:
        return [(part_of(limit, self._num_routers), amount) for limit, amount in charges]


def part_of(limit: Limit, num_routers: int) -> Limit:
    """What one router of so many may let in by itself."""
    if isinstance(limit, Rate):
        return Rate(limit.key, limit.kind, limit.per_minute / num_routers)
    return replace(limit, tokens=limit.tokens / num_routers)
