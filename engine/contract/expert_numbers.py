"""What a group of ranks has counted of a mixture's experts."""

from __future__ import annotations

import msgspec


class ExpertNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """How a group balances the experts of a mixture."""

    imbalance: dict[int, float] = {}
    """By layer, the load of the busiest group of ranks over the mean, as last measured."""
    num_rebalances: int = 0
    """Layers whose experts have changed their ranks."""
    num_failures: int = 0
    """Rebalances that were given up, to be tried again."""
