"""How the router thinks of each worker, as a scrape finds it: a worker that has gone leaves nothing
behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class MemberStanding:
    """Of one worker."""

    worker_id: str
    role: str
    state: str
    """As `splitserve status` has it."""
    window: int
    """Requests that it may have at once while it is cold."""


class MemberMetrics(Collector):
    """Of one router: a label for each worker, of which a fleet has hundreds at most."""

    def __init__(self, standings: Callable[[], Iterable[MemberStanding]]) -> None:
        self._standings = standings

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See Collector; called with every scrape."""
        state = GaugeMetricFamily(
            "splitserve_member_state",
            "1: what the router thinks of a worker, as in `splitserve status`",
            labels=["worker", "role", "state"],
        )
        window = GaugeMetricFamily(
            "splitserve_member_window_requests",
            "Requests that a worker may have at once while it is cold; 64: no limit",
            labels=["worker", "role"],
        )
        for each in self._standings():
            state.add_metric([each.worker_id, each.role, each.state], 1)
            window.add_metric([each.worker_id, each.role], each.window)
        yield state
        yield window
