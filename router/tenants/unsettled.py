"""What the store has not heard yet of what limits were used for."""

from __future__ import annotations

from collections.abc import Sequence

from router.tenants.limit_store import Charge
from router.tenants.limits import Limit, Rate

MAX_TOGETHER = 200
"""Limits that the store hears of at once: a fraction of a millisecond of its time."""


class Unsettled:
    """As many as there are limits in use; one that comes to nothing is dropped."""

    def __init__(self) -> None:
        self._units: dict[str, tuple[Limit, float]] = {}

    def __len__(self) -> int:
        return len(self._units)

    def add(self, charges: Sequence[Charge]) -> None:
        """Negative: given back."""
        for limit, amount in charges:
            total = self._units.get(limit.key, (limit, 0.0))[1] + amount
            self._put(limit, total)

    def fade(self, passed_s: float, num_routers: int) -> None:
        """For a time without the store: a rate forgets what its part of it has paid meanwhile."""
        for limit, units in list(self._units.values()):
            if isinstance(limit, Rate):
                paid = passed_s / limit.interval_s / num_routers
                self._put(limit, max(0.0, units - paid) if units > 0 else units)

    def pop(self) -> list[Charge]:
        """To be told now: what is not sent is added again."""
        keys = list(self._units)[:MAX_TOGETHER]
        return [self._units.pop(key) for key in keys]

    def _put(self, limit: Limit, units: float) -> None:
        if units:
            self._units[limit.key] = limit, units
        else:
            self._units.pop(limit.key, None)
