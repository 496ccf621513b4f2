"""The names of what is kept in the store. Several fleets may share one: each has its namespace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreNames:
    """Of one fleet."""

    namespace: str
    """Of one operator's fleets: they have keys, and what keys have spent, in common."""
    fleet: str
    """Within it: the name of the model that is served."""

    def of_all(self, *parts: str) -> str:
        """For what all fleets of the namespace share."""
        return ":".join((self.namespace, *parts))

    def of_fleet(self, *parts: str) -> str:
        """For what the routers of this fleet share."""
        return ":".join((self.namespace, "fleet", self.fleet, *parts))
