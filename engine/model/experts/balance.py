"""How even the experts' load is, in numbers for the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.deadline import Clock
from engine.contract.messages import ExpertNumbers


@dataclass(slots=True)
class ExpertBalance:
    """As the conductor knows it."""

    clock: Clock
    imbalance: Mapping[int, float] = field(default_factory=dict)
    """By layer, the load of the busiest group over the mean, as last measured; 1.0 is even."""
    num_rebalances: int = 0
    """Layers whose experts have changed their ranks."""
    num_failures: int = 0
    """Rebalances that were given up."""
    finished_s: float | None = None
    """When the last rebalance was over, by the clock; None: there has been none."""

    def numbers(self) -> ExpertNumbers:
        """Of this moment, for the metrics."""
        return ExpertNumbers(
            imbalance=dict(self.imbalance),
            num_rebalances=self.num_rebalances,
            num_failures=self.num_failures,
        )

    @property
    def age_s(self) -> float | None:
        """Seconds since the last rebalance was finished; None: there has been none."""
        return None if self.finished_s is None else self.clock() - self.finished_s
