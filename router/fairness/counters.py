"""How many tokens each tenant has been served, by its weight. Where several routers serve the same
tenants, a store that all of them add to takes the place of MemoryCounters."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

MAX_TENANTS = 4096
"""The one that was longest untouched is forgotten: it comes back as one that is new."""


class Counters(Protocol):
    """From the event loop only; answers at once, as far as it is known here."""

    def of(self, tenant: str) -> float:
        """0 for one that is new."""
        ...

    def add(self, tenant: str, tokens: float) -> None:
        """Negative: given back."""
        ...

    def lift(self, tenant: str, least: float) -> None:
        """At least so much from now on."""
        ...


class MemoryCounters:
    """Of one router."""

    def __init__(self, max_tenants: int = MAX_TENANTS) -> None:
        self._max_tenants = max_tenants
        self._values: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def of(self, tenant: str) -> float:
        """See Counters."""
        return self._values.get(tenant, 0.0)

    def add(self, tenant: str, tokens: float) -> None:
        """See Counters. One that is forgotten meanwhile stays so: it is lifted when it comes."""
        if tenant in self._values:
            self._values[tenant] += tokens

    def lift(self, tenant: str, least: float) -> None:
        """See Counters."""
        self._values[tenant] = max(self._values.get(tenant, 0.0), least)
        self._values.move_to_end(tenant)
        if len(self._values) > self._max_tenants:
            self._values.popitem(last=False)
