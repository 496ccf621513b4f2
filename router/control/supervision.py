"""What the supervisor of this router's fleet has told last (cluster/supervisor/fleet_report.py)."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.errors import InvalidRequest
from cluster.identity import Role
from cluster.membership.member import MAX_NAME_CHARS
from protos.membership_pb2 import PoolState, RestartCount, SpareWorker, SupervisorReport
from router.control.orders import Orders
from router.telemetry.diary import Diary, Happening
from router.telemetry.metrics import RouterMetrics

MAX_SPARES = 256
MAX_POOLS = 64
MAX_WORDS = 4096
"""Characters of a pool's problem."""
MAX_RESTART_KINDS = 256
"""Of pool and cause, over the router's whole life: each is a metric of its own."""


class Supervision:
    """Kept for operators and shown in the metrics. From the event loop only."""

    def __init__(self, metrics: RouterMetrics, diary: Diary) -> None:
        self._metrics = metrics
        self._diary = diary
        self._spares: Sequence[SpareWorker] = ()
        self._pools: Sequence[PoolState] = ()
        self.orders = Orders()
        self._counts: dict[tuple[str, str], int] = {}
        for role in Role:
            metrics.warm_spares.labels(role.value).set(0)

    @property
    def spares(self) -> Sequence[SpareWorker]:
        """Workers that are loaded, and not members."""
        return self._spares

    @property
    def pools(self) -> Sequence[PoolState]:
        """How many workers there are and are to be; empty where no supervisor has told."""
        return self._pools

    @property
    def restarts(self) -> list[RestartCount]:
        """By pool and cause."""
        return [
            RestartCount(pool=pool, cause=cause, count=count)
            for (pool, cause), count in sorted(self._counts.items())
        ]

    def take(self, report: SupervisorReport) -> None:
        """In place of the one before. Raises InvalidRequest, and changes nothing, for one that no
        supervisor makes."""
        counts = {(each.pool, each.cause): each.count for each in report.restarts}
        _check(report, len(self._counts.keys() | counts.keys()))
        self._spares = tuple(report.spares)
        self._pools = tuple(report.pools)
        self.orders.take_answers(report.answers)
        for role in Role:
            num_spares = sum(spare.role == role for spare in self._spares)
            self._metrics.warm_spares.labels(role.value).set(num_spares)
        for (pool, cause), count in counts.items():
            more = count - self._counts.get((pool, cause), 0)
            self._metrics.restarts.labels(pool, cause).inc(max(0, more))
            if more > 0:
                self._diary.note(Happening.RESTARTED, pool, cause)
            self._counts[pool, cause] = count


def _check(report: SupervisorReport, num_kinds: int) -> None:
    if len(report.spares) > MAX_SPARES or num_kinds > MAX_RESTART_KINDS:
        raise InvalidRequest(
            f"{len(report.spares)} spares and {num_kinds} kinds of restarts; at most "
            f"{MAX_SPARES} and {MAX_RESTART_KINDS}"
        )
    if len(report.pools) > MAX_POOLS or any(len(p.problem) > MAX_WORDS for p in report.pools):
        raise InvalidRequest(f"more than {MAX_POOLS} pools, or one with a long problem")
    named = [pool.name for pool in report.pools]
    named += [name for spare in report.spares for name in (spare.worker_id, spare.address)]
    named += [word for each in report.restarts for word in (each.pool, each.cause)]
    if any(len(name) > MAX_NAME_CHARS for name in named):
        raise InvalidRequest(f"a name is longer than {MAX_NAME_CHARS} characters")
    if any(spare.role not in set(Role) for spare in report.spares):
        raise InvalidRequest(f"the role of a spare is none of {', '.join(Role)}", param="role")
