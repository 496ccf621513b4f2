"""A router's own part of limits, for as long as the store that has them is away.

away: of each limit as much as there are routers, the part of one, from what was known of it
back: forgotten; what was let in meanwhile the store hears otherwise
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster.deadline import Clock
from router.tenants.limit_store import Charge, MemoryLimits, Shortage
from router.tenants.limits import Left, Limit, Rate, State


class LimitShare:
    """A LimitStore."""

    def __init__(self, clock: Clock, num_routers: int, known: Mapping[str, State]) -> None:
        """`known`: states of whole limits. Each router takes its part of what is spent of a budget;
        who pays a part of a rate's debt at that part of the rate pays as long."""
        self._num_routers = num_routers
        parts = {key: (first, second / num_routers) for key, (first, second) in known.items()}
        self._limits = MemoryLimits(clock, parts)

    async def take(self, charges: Sequence[Charge]) -> Shortage | None:
        """See LimitStore."""
        return await self._limits.take(self._parts(charges))

    def settle(self, charges: Sequence[Charge]) -> None:
        """See LimitStore."""
        self._limits.settle(self._parts(charges))

    def left(self, limit: Limit) -> Left:
        """See LimitStore."""
        return self._limits.left(part_of(limit, self._num_routers))

    def _parts(self, charges: Sequence[Charge]) -> list[Charge]:
        return [(part_of(limit, self._num_routers), amount) for limit, amount in charges]


def part_of(limit: Limit, num_routers: int) -> Limit:
    """What one router of so many may let in by itself."""
    if isinstance(limit, Rate):
        return Rate(limit.key, limit.kind, limit.per_minute / num_routers)
    return replace(limit, tokens=limit.tokens / num_routers)
