"""What requests are sent with: where to, at which price, and who is told."""

from __future__ import annotations

from dataclasses import dataclass

from router.dispatch.routing import RoutingDesk
from router.fleet.fleet import Fleet
from router.fleet.fleet_adapters import FleetAdapters
from router.index.prefix_index import PrefixIndex
from router.pricing.estimates import Estimates
from router.telemetry.decisions import DecisionLog
from router.telemetry.metrics import RouterMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """Of one router, for all of its requests."""

    fleet: Fleet
    adapters: FleetAdapters
    index: PrefixIndex
    desk: RoutingDesk
    estimates: Estimates
    metrics: RouterMetrics
    decisions: DecisionLog
