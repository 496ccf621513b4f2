"""What the router is told for its operators: who is kept to spare, and what was started again.

Nobody else knows. A fleet that has no spares and has lost nothing tells nothing. Otherwise all of
it, at once when it changes and every second: a router that was started again knows it soon.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from cluster.deadline import Sleep
from cluster.errors import SplitserveError
from cluster.logs import get_logger
from cluster.process.background import Background, nothing_needed, until_one_ends
from cluster.supervisor.news import News, Promoted, Restarting, Retiring, Serving
from cluster.supervisor.places import WarmWorker
from cluster.supervisor.pool import PoolSize, pool_of
from cluster.supervisor.reserve import MakeDialer
from protos import membership_pb2

REPORT_INTERVAL_S = 1.0
_TIMEOUT_S = 2.0
_log = get_logger("supervisor")


class FleetReport:
    """A Watcher of the supervisor's news. All calls from one event loop."""

    def __init__(
        self,
        router: str,
        pools: Sequence[PoolSize],
        spares: Callable[[], Sequence[WarmWorker]],
        dialer: MakeDialer,
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`router`: host:port. `spares` is asked for every report."""
        self._router = router
        self._pools = pools
        self._spares = spares
        self._dialer = dialer
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
            self._begin()

    async def close(self) -> None:
        """Idempotent."""
        await self._background.close()

    def _begin(self) -> None:
        if not self._has_begun and (self._restarts or self._spares()):
            self._has_begun = True
            self._background.keep("report to the router", self._tell_always)

    async def _tell_always(self) -> None:
        link = self._dialer().supervisor(self._router)
        try:
            while True:
                self._has_changed.clear()
                try:
                    await link.report(self._report(), timeout_s=_TIMEOUT_S)
                except SplitserveError as failure:  # a router that starts again, most often
                    _log.debug("the router was not told of the fleet", cause=failure.message)
                await until_one_ends(self._has_changed.wait(), self._sleep(REPORT_INTERVAL_S))
        finally:
            await link.close()

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
        )
