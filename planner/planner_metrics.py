"""What a planner shows of its decisions in numbers; `splitserve events` has them in words."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from planner.decision import Stand
from planner.outcome import OrderOutcome
from planner.sight import RoleSight


class PlannerMetrics:
    """Of one planner, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._pressure = Gauge(
            "splitserve_planner_pressure_ratio",
            "The highest pressure of a role that the planner has seen; 1: at the router's budget",
            ["role"],
            registry=self.registry,
        )
        self._workers = Gauge(
            "splitserve_planner_workers",
            "Workers of a pool that are wanted, and that are ready",
            ["pool", "are"],
            registry=self.registry,
        )
        self._stand = Gauge(
            "splitserve_planner_stand",
            "1 for what the planner makes of a role now: grows, shrinks, steady, at_most, ...",
            ["role", "stand"],
            registry=self.registry,
        )
        self._decisions = Counter(
            "splitserve_planner_decisions_total",
            "Changes of a pool that were begun, refused, or would have been begun (a dry run)",
            ["pool", "outcome"],
            registry=self.registry,
        )
        self.is_seeing = Gauge(
            "splitserve_planner_sees_fleet",
            "1 while the planner's last look at routers and pools was answered",
            registry=self.registry,
        )

    def seen(self, sight: RoleSight, stand: Stand) -> None:
        """One look, and what it comes to."""
        self._pressure.labels(sight.role).set(sight.pressure.ratio)
        for each in Stand:
            self._stand.labels(sight.role, each.value).set(each is stand)
        for pool in sight.pools:
            self._workers.labels(pool.name, "wanted").set(pool.num_wanted)
            self._workers.labels(pool.name, "ready").set(pool.num_ready)

    def decided(self, pool: str, outcome: OrderOutcome) -> None:
        """One change."""
        self._decisions.labels(pool, outcome.value).inc()
