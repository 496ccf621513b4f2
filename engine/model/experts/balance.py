"""How even the experts' load is, in numbers for the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.contract.expert_numbers import ExpertNumbers


@dataclass(slots=True)
class ExpertBalance:
    """As the conductor knows it."""

    imbalance: Mapping[int, float] = field(default_factory=dict)
    """By layer, the load of the busiest group over the mean, as last measured; 1.0 is even."""
    num_rebalances: int = 0
    """Layers whose experts have changed their ranks."""
    num_failures: int = 0
    """Rebalances that were given up."""

    def numbers(self) -> ExpertNumbers:
        """Of this moment, for the metrics."""
        return ExpertNumbers(
            imbalance=dict(self.imbalance),
            num_rebalances=self.num_rebalances,
            num_failures=self.num_failures,
        )
