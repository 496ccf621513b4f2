"""What went over the link of each pair of workers while both have been here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cluster.identity import WorkerKey
from router.pricing.link_rates import Link

MAX_LINKS = 65_536
"""Of 256 prefill and 256 decode workers; what more there are is not counted."""


@dataclass(slots=True)
class LinkTotal:
    """Of one link, since both are members."""

    num_transfers: int = 0
    """Of requests that ended well."""
    num_bytes: int = 0
    num_failed: int = 0
    """Handoffs that the reader gave up."""


class LinkTotals:
    """Of one router. From the event loop only."""

    def __init__(self) -> None:
        self._totals: dict[Link, LinkTotal] = {}

    def add(self, link: Link, num_bytes: int) -> None:
        """One request's transfer."""
        if (total := self._of(link)) is not None:
            total.num_transfers += 1
            total.num_bytes += num_bytes

    def failed(self, link: Link) -> None:
        """A handoff was given up."""
        if (total := self._of(link)) is not None:
            total.num_failed += 1

    def of(self, link: Link) -> LinkTotal:
        """Zeros where nothing went over it."""
        return self._totals.get(link) or LinkTotal()

    def __iter__(self) -> Iterator[tuple[Link, LinkTotal]]:
        return iter(self._totals.items())

    def forget(self, worker: WorkerKey) -> None:
        """The worker is gone."""
        for link in [link for link in self._totals if worker in link]:
            del self._totals[link]

    def _of(self, link: Link) -> LinkTotal | None:
        if link not in self._totals and len(self._totals) >= MAX_LINKS:
            return None
        return self._totals.setdefault(link, LinkTotal())
