"""The part of a worker's Prometheus page on the experts of a mixture."""

from __future__ import annotations

import math
import time

from prometheus_client import CollectorRegistry, Counter, Gauge

from cluster.deadline import Clock
from engine.contract.expert_numbers import ExpertNumbers


class ExpertMetrics:
    """What a group of ranks says of its balance. Of other engines there is nothing to say."""

    def __init__(self, registry: CollectorRegistry, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._last = ExpertNumbers()
        self._finished_s: float | None = None
        self._imbalance = Gauge(
            "splitserve_worker_expert_imbalance",
            "Load of the busiest group of ranks over the mean, by layer; 1 is even.",
            ["layer"],
            registry=registry,
        )
        self._rebalances = Counter(
            "splitserve_worker_expert_rebalances",
            "Layers whose experts have changed their ranks.",
            registry=registry,
        )
        self._failures = Counter(
            "splitserve_worker_expert_rebalance_failures",
            "Rebalances that were given up, to be tried again.",
            registry=registry,
        )
        age = Gauge(
            "splitserve_worker_expert_rebalance_age_seconds",
            "Since the last rebalance was over; NaN where there has been none.",
            registry=registry,
        )
        age.set_function(self._age_s)

    def take(self, numbers: ExpertNumbers) -> None:
        """The engine's latest; counts begin anew with every engine."""
        for layer, imbalance in numbers.imbalance.items():
            self._imbalance.labels(str(layer)).set(imbalance)
        done = max(0, numbers.num_rebalances - self._last.num_rebalances)
        self._rebalances.inc(done)
        self._failures.inc(max(0, numbers.num_failures - self._last.num_failures))
        if done:
            self._finished_s = self._clock()
        self._last = numbers

    def _age_s(self) -> float:
        return math.nan if self._finished_s is None else self._clock() - self._finished_s
