"""What the router is told for its operators: how many workers there are and are to be, who is kept
to spare, and what was started again.

Nobody else knows. All of it, at once when it changes and every second: a router that was started
again knows it soon. The replies are what operators order; each is answered with the next report.
A fleet that starts tells nothing before it has spares, or has lost something.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from cluster.deadline import Sleep
from cluster.errors import SplitserveError
from cluster.logs import get_logger
from cluster.process.background import Background, nothing_needed, until_one_ends
from cluster.scaling.scaler import PoolState, ScaleOrder, ScalePlan, ScaleRefused
from cluster.scaling.wire import order_from_wire, plan_to_wire, pool_to_wire, refusal_to_wire
from cluster.supervisor.news import News, Promoted, Restarting, Retiring, Serving
from cluster.supervisor.places import WarmWorker
from cluster.supervisor.pool import PoolSize, pool_of
from cluster.supervisor.reserve import MakeDialer
from protos import membership_pb2

REPORT_INTERVAL_S = 1.0
MAX_ORDERS = 8
"""Of one reply; a router sends one."""
_TIMEOUT_S = 2.0
_log = get_logger("supervisor")


class TakesOrders(Protocol):
    """Who knows the sizes of the pools, and changes them (sizing.py)."""

    @property
    def states(self) -> list[PoolState]:
        """Of all pools, now."""

    async def take(self, order: ScaleOrder) -> ScalePlan:
        """Begins it, within a few seconds. Raises ScaleRefused."""


class FleetReport:
    """A Watcher of the supervisor's news. All calls from one event loop."""

    def __init__(
        self,
        router: str,
        pools: Sequence[PoolSize],
        spares: Callable[[], Sequence[WarmWorker]],
        dialer: MakeDialer,
        *,
        sizes: TakesOrders,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`router`: host:port. `spares` and `sizes` are asked for every report."""
        self._router = router
        self._pools = pools
        self._spares = spares
        self._dialer = dialer
        self._sizes = sizes
        self._answers: list[membership_pb2.ScaleAnswer] = []
        self._sleep = sleep
        self._restarts: Counter[tuple[str, str]] = Counter()
        self._has_begun = False
        self._has_changed = asyncio.Event()
        self._background = Background(nothing_needed, sleep=sleep)

    def __call__(self, piece: News) -> None:
        """What is told changes with these."""
        if isinstance(piece, Restarting):
            pool = pool_of(piece.failure.name, self._pools)
            self._restarts[pool, piece.failure.kind] += 1
        if isinstance(piece, Restarting | Retiring | Serving | Promoted):
            self._has_changed.set()
            if self._restarts or self._spares():
                self.begin()

    def begin(self) -> None:
        """The fleet is complete: from now on orders are taken. Idempotent."""
        if not self._has_begun:
            self._has_begun = True
            self._background.keep("report to the router", self._tell_always)

    async def close(self) -> None:
        """Idempotent."""
        await self._background.close()

    async def _tell_always(self) -> None:
        link = self._dialer().supervisor(self._router)
        try:
            while True:
                self._has_changed.clear()
                try:
                    await self._obey(await link.report(self._report(), timeout_s=_TIMEOUT_S))
                except SplitserveError as failure:  # a router that starts again, most often
                    _log.debug("the router was not told of the fleet", cause=failure.message)
                await until_one_ends(self._has_changed.wait(), self._sleep(REPORT_INTERVAL_S))
        finally:
            await link.close()

    async def _obey(self, reply: membership_pb2.SupervisorReportTaken) -> None:
        """The reply says that the answers of its report have come."""
        self._answers = [await self._answer_to(order) for order in reply.orders[:MAX_ORDERS]]
        if self._answers:
            self._has_changed.set()

    async def _answer_to(self, order: membership_pb2.ScaleOrder) -> membership_pb2.ScaleAnswer:
        try:
            answer = plan_to_wire(await self._sizes.take(order_from_wire(order)))
        except ScaleRefused as refusal:
            answer = refusal_to_wire(refusal)
        answer.number = order.number
        return answer

    def _report(self) -> membership_pb2.SupervisorReport:
        return membership_pb2.SupervisorReport(
            spares=[
                membership_pb2.SpareWorker(
                    worker_id=spare.name, role=spare.pool, address=spare.address, pid=spare.pid
                )
                for spare in self._spares()
            ],
            restarts=[
                membership_pb2.RestartCount(pool=pool, cause=cause, count=count)
                for (pool, cause), count in sorted(self._restarts.items())
            ],
            pools=map(pool_to_wire, self._sizes.states),
            answers=self._answers,
        )
