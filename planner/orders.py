"""A verdict carried out: whoever starts and ends workers is asked, and routers are told.

A worker that leaves drains as with `splitserve scale`: whoever ends it tells it to, and there is no
other way. Of a supervised fleet those go that have the least to lose; on Kubernetes it chooses,
since to name a pod takes the right to change any pod of the namespace.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.dial.dialer import OperatorLink
from cluster.errors import SplitserveError, WorkerLost
from cluster.logs import get_logger
from cluster.scaling.pool_members import least_to_lose
from cluster.scaling.scaler import NotSettled, ScaleOrder, Scaler, ScaleRefused
from planner.decision import PoolVerdict
from planner.outcome import OrderOutcome
from planner.routers import Routers
from planner.sight import LIMIT_S
from protos.fleet_watch_pb2 import PlannerWord
from protos.membership_pb2 import MemberState

PLANNER = "the planner"
_log = get_logger("planner")


class SizeOrders:
    """From one event loop."""

    def __init__(
        self, routers: Routers, scaler: Scaler, *, names_workers: bool, is_dry_run: bool
    ) -> None:
        """`names_workers`: that are to leave."""
        self._routers = routers
        self._scaler = scaler
        self._names_workers = names_workers
        self._is_dry_run = is_dry_run

    async def carry_out(self, verdict: PoolVerdict, members: Sequence[MemberState]) -> OrderOutcome:
        """Begins the change, or asks whether it may be; never raises what the fleet answers."""
        num_leaving = verdict.size_before - verdict.size if self._names_workers else 0
        order = ScaleOrder(
            pool=verdict.pool,
            size=verdict.size,
            leaving=tuple(least_to_lose(members, verdict.pool, num_leaving)),
            is_dry_run=self._is_dry_run,
            by=PLANNER,
        )
        outcome, remark = OrderOutcome.DRY_RUN if self._is_dry_run else OrderOutcome.BEGUN, ""
        try:
            await self._scaler.scale(order)
        except ScaleRefused as refusal:
            outcome, remark = OrderOutcome.REFUSED, f" ({refusal.reason}: {refusal.message})"
        except (NotSettled, SplitserveError) as failure:
            outcome, remark = OrderOutcome.UNKNOWN, f" ({failure})"
        sizes = f"from {verdict.size_before} to {verdict.size}"
        await self.tell(verdict.pool, f"{sizes}, {outcome}{remark}: {verdict.why}")
        return outcome

    async def tell(self, pool: str, words: str) -> None:
        """In the log, and as an event of every router that hears it."""
        _log.info("planned", pool=pool, words=words)
        word = PlannerWord(pool=pool, words=words)

        async def told(router: OperatorLink) -> None:
            await router.planned(word, timeout_s=LIMIT_S)

        try:
            await self._routers.each(told)
        except WorkerLost as failure:
            _log.warning("no router has heard what was planned", error=failure.message)
