"""The planner's turn, again and again: look, decide for each role, carry out, tell.

nothing is seen  ->  nothing is decided, and what was over or calm begins anew after a while
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.deadline import Clock, Sleep
from cluster.errors import SplitserveError
from cluster.logs import get_logger
from cluster.planner_options import PlanRules
from cluster.scaling.scaler import ScaleRefused
from planner.decision import Case, PoolVerdict, Stand, decide
from planner.growth import PastGrowth
from planner.memory import Memory
from planner.orders import SizeOrders
from planner.outcome import OrderOutcome
from planner.planner_metrics import PlannerMetrics
from planner.pool_limits import PoolLimits
from planner.sight import FleetEyes, FleetSight, RoleSight
from protos.membership_pb2 import MemberState

_log = get_logger("planner")
_MAY_HAVE_GROWN = (OrderOutcome.BEGUN, OrderOutcome.UNKNOWN)


class Planning:
    """Of one fleet. From one event loop."""

    def __init__(
        self,
        eyes: FleetEyes,
        orders: SizeOrders,
        limits: Sequence[PoolLimits],
        rules: PlanRules,
        metrics: PlannerMetrics,
        clock: Clock,
    ) -> None:
        self._eyes = eyes
        self._orders = orders
        self._limits = limits
        self._rules = rules
        self._metrics = metrics
        self._clock = clock
        self._memories: dict[str, Memory] = {}
        self._stands: dict[str, Stand] = {}
        self._unhelped: dict[tuple[str, str], PastGrowth] = {}
        self._blind_because: str | None = "it has not looked yet"
        self._missing: frozenset[str] = frozenset()

    def why_not_ready(self) -> str | None:
        """For a probe; from any thread."""
        return self._blind_because

    async def run(self, sleep: Sleep) -> None:
        """Never returns."""
        while True:
            await self.turn()
            await sleep(self._rules.look_interval_s)

    async def turn(self) -> None:
        """One look, and what follows from it."""
        try:
            sight = await self._eyes.look()
        except (SplitserveError, ScaleRefused) as failure:
            self._is_blind(failure.message)
            return
        if self._blind_because is not None:
            _log.info("sees the fleet", roles=sorted(sight.roles))
        self._blind_because = None
        self._metrics.is_seeing.set(1)
        self._tell_missing(sight)
        for role in sight.roles.values():
            await self._plan(role, sight.members)

    async def _plan(self, sight: RoleSight, members: Sequence[MemberState]) -> None:
        now_s = self._clock()
        memory = self._memories.get(sight.role, Memory()).after(sight, self._rules, now_s)
        self._memories[sight.role] = memory
        if not any(limits.pool == pool.name for limits in self._limits for pool in sight.pools):
            return
        verdict = decide(Case(sight, memory, self._limits, self._rules, now_s))
        self._metrics.seen(sight, verdict.stand)
        if verdict.pool:
            self._memories[sight.role] = memory.tried(now_s)
            outcome = await self._orders.carry_out(verdict, members)
            self._metrics.decided(verdict.pool, outcome)
            if verdict.stand is Stand.GROWS and outcome in _MAY_HAVE_GROWN:
                self._memories[sight.role] = self._memories[sight.role].grown(sight)
        else:
            await self._tell_stand(sight, verdict)
        self._stands[sight.role] = verdict.stand

    async def _tell_stand(self, sight: RoleSight, verdict: PoolVerdict) -> None:
        """Once, when it has changed; to operators where they alone can help."""
        if verdict.stand is Stand.UNHELPED:
            await self._tell_unhelped(sight, verdict)
            return
        if self._stands.get(sight.role) is verdict.stand:
            return
        if verdict.stand is Stand.AT_MOST:
            await self._orders.tell(sight.role, f"does not grow: {verdict.why}")
        else:
            _log.info("stays", role=sight.role, stand=verdict.stand.value, why=verdict.why)

    async def _tell_unhelped(self, sight: RoleSight, verdict: PoolVerdict) -> None:
        """Once for each growth, however often its signal comes and goes."""
        growth = self._memories[sight.role].growths[sight.pressure.signal]
        about = (sight.role, sight.pressure.signal)
        if self._unhelped.get(about) is growth:
            return
        self._unhelped[about] = growth
        await self._orders.tell(sight.role, f"does not grow: {verdict.why}")

    def _is_blind(self, why: str) -> None:
        if self._blind_because != why:
            _log.warning("nothing is decided: the fleet is not seen", why=why)
        self._blind_because = why
        self._metrics.is_seeing.set(0)

    def _tell_missing(self, sight: FleetSight) -> None:
        there = {pool.name for role in sight.roles.values() for pool in role.pools}
        missing = frozenset(each.pool for each in self._limits) - there
        if missing - self._missing:
            _log.warning("the fleet has no such pools", pools=sorted(missing), there=sorted(there))
        self._missing = missing
