"""The two lines of a router: those who want tokens, and those whose prompts are pooled.

They wait for different workers, so that neither stands behind the other. Each has as many places,
and lets as many wait, as the router's options say.
"""

from __future__ import annotations

from router.dispatch.admission import Admission
from router.dispatch.stream import RoutedRequest
from router.telemetry.metrics import RouterMetrics
from router.tenants.priority import Priority


class BothLines:
    """From the event loop only."""

    def __init__(self, tokens: Admission, pooled: Admission | None = None) -> None:
        """`pooled`: None of a model that does not pool."""
        self.tokens = tokens
        self.pooled = pooled
        self._all = [tokens] if pooled is None else [tokens, pooled]

    def of(self, request: RoutedRequest) -> Admission:
        """Where a request waits."""
        if request.pool is None or self.pooled is None:
            return self.tokens
        return self.pooled

    def publish(self, metrics: RouterMetrics) -> None:
        """How many wait and run, in both; once."""
        metrics.watch_queue(
            lambda: sum(line.num_queued for line in self._all),
            lambda: sum(line.num_running for line in self._all),
        )

    def num_queued(self, priority: Priority) -> int:
        """Of one class."""
        return sum(sum(line.queued_by_tenant(priority).values()) for line in self._all)

    @property
    def pooled_wait_s(self) -> float:
        """How long the second line is, in time."""
        return 0.0 if self.pooled is None else self.pooled.wait_s
