"""The two lines of a router: those who want tokens, and those whose prompts are pooled.

They wait for different workers, so that neither stands behind the other. Each has as many places,
and lets as many wait, as the router's options say. Who looks at a router sees both as one.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from router.dispatch.admission import Admission
from router.dispatch.stream import RoutedRequest
from router.tenants.priority import Priority


class SeenLine(Protocol):
    """What watchers ask of a line: an Admission is one, and so are both together."""

    @property
    def num_running(self) -> int:
        """Requests that have a place."""
        ...

    @property
    def num_unused(self) -> int:
        """Of these, whose requests are not at their workers yet."""
        ...

    @property
    def num_queued(self) -> int:
        """Requests that wait."""
        ...

    def queued_by_tenant(self, priority: Priority) -> dict[str, int]:
        """How many wait of each tenant, in one class."""
        ...


class BothLines:
    """A SeenLine. From the event loop only."""

    def __init__(self, tokens: Admission, pooled: Admission | None = None) -> None:
        """`pooled`: None of a model that does not pool."""
        self.tokens = tokens
        self.pooled = pooled
        self._all = [tokens] if pooled is None else [tokens, pooled]

    def of(self, request: RoutedRequest) -> Admission:
        """Where a request waits."""
        return self.line(is_pooled=request.pool is not None)

    def line(self, *, is_pooled: bool) -> Admission:
        """Where those wait who want that."""
        if not is_pooled or self.pooled is None:
            return self.tokens
        return self.pooled

    @property
    def num_running(self) -> int:
        """See SeenLine."""
        return sum(line.num_running for line in self._all)

    @property
    def num_unused(self) -> int:
        """See SeenLine."""
        return sum(line.num_unused for line in self._all)

    @property
    def num_queued(self) -> int:
        """See SeenLine."""
        return sum(line.num_queued for line in self._all)

    def queued_by_tenant(self, priority: Priority) -> dict[str, int]:
        """See SeenLine."""
        waiting = Counter[str]()
        for line in self._all:
            waiting.update(line.queued_by_tenant(priority))
        return waiting

    @property
    def pooled_wait_s(self) -> float:
        """How long the second line is, in time."""
        return 0.0 if self.pooled is None else self.pooled.wait_s
