"""What is counted of a router's fleet for those who watch it: operators, and whoever scales it."""

from __future__ import annotations

from functools import partial

from cluster.common_options import BudgetOptions
from cluster.deadline import Clock, Sleep
from router.control.fleet_watch import FleetWatchService
from router.control.kv_links import KvLinks
from router.control.pool_pressure import PoolPressure
from router.control.work_message import work_to_wire
from router.dispatch.both_lines import BothLines
from router.dispatch.in_flight import InFlight
from router.fleet.fleet import Fleet
from router.pricing.estimates import Estimates
from router.telemetry.decisions import DecisionLog
from router.telemetry.lately import Lately
from router.telemetry.metrics import RouterMetrics
from router.telemetry.pressure_metrics import PressureMetrics


class Watching:
    """Of one router. `run` belongs to it; nobody who watches costs a request anything."""

    def __init__(
        self,
        fleet: Fleet,
        estimates: Estimates,
        lines: BothLines,
        metrics: RouterMetrics,
        budgets: BudgetOptions,
        clock: Clock,
    ) -> None:
        self._fleet = fleet
        self._estimates = estimates
        self._lines = lines
        self._clock = clock
        self._lately = Lately(metrics, clock)
        self._pressure = PoolPressure(
            fleet,
            estimates,
            lambda: lines.tokens.wait_s,
            budgets,
            clock,
            lambda: lines.pooled_wait_s,
        )
        metrics.registry.register(PressureMetrics(self._pressure.now))

    async def run(self, sleep: Sleep) -> None:
        """Never returns."""
        await self._lately.run(sleep)

    def service(self, in_flight: InFlight, decisions: DecisionLog) -> FleetWatchService:
        """For operators."""
        links, diary = KvLinks(self._fleet, self._estimates), self._fleet.diary
        seen = (in_flight, links, diary, self._lately, self._lines)
        work = partial(work_to_wire, self._fleet.ledger, self._clock)
        return FleetWatchService(*seen, decisions, work, self._pressure.now)
