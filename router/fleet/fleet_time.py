"""By which clocks a fleet's workers are judged."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.deadline import Clock
from cluster.membership.expiry import Lease


@dataclass(frozen=True, slots=True)
class FleetTime:
    """Silence has a lease; what is done and left undone has a clock."""

    lease: Lease
    """The store's."""
    rest_clock: Clock
    """Of those that failed and rest, and of those that stand."""
