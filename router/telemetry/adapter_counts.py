"""Requests by the adapter that computes them."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter

from cluster.adapter import MAX_ADAPTERS

OTHERS: Final = "(others)"
"""No adapter's name: those have no brackets."""


class AdapterCounts:
    """Of one router. Labels are bounded: names that the fleet has had, as many as a worker offers
    at most, each with one of three outcomes; those that come later count together."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._names = set[str]()
        self._requests = Counter(
            "splitserve_adapter_requests",
            "Requests that an adapter computed, by its name and how they ended: ok, cancelled or "
            f"failed; {OTHERS}: of names that came later than {MAX_ADAPTERS} others",
            ["adapter", "outcome"],
            registry=registry,
        )

    def ended(self, name: str, outcome: str) -> None:
        """`outcome`: ok, or an error's code."""
        if name not in self._names:
            if len(self._names) < MAX_ADAPTERS:
                self._names.add(name)
            else:
                name = OTHERS
        how = outcome if outcome in ("ok", "cancelled") else "failed"
        self._requests.labels(name, how).inc()
