"""Which new workers are to be ready: in a rolling update others leave then."""

from __future__ import annotations

from cluster.deadline import Clock
from cluster.identity import WorkerKey
from router.fleet.first_look import HEAR_ALL_S
from router.fleet.fleet import Fleet
from router.fleet.pool_skew import NO_LIMIT, PoolSkew


class Settling:
    """Of one router; changes nothing."""

    def __init__(self, fleet: Fleet, max_skew: float, clock: Clock) -> None:
        """`max_skew`: see PoolSkew."""
        self._fleet = fleet
        self._max_skew = max_skew
        self._clock = clock
        self._began_s = clock()

    def why_later(self, key: WorkerKey) -> str:
        """Why a worker that is settling is not to be ready yet; empty: it may."""
        if self._max_skew >= NO_LIMIT:
            return ""
        if self._clock() - self._began_s < HEAR_ALL_S:
            return "this router has just started, and may not know all workers yet"
        item = self._fleet.find(key)
        return "" if item is None else self._skew().why_ahead(item)

    def all_later(self) -> dict[WorkerKey, str]:
        """Those that wait for others of their pairing, and why."""
        skew = self._skew()
        settling = (item for item in self._fleet.members if item.state.is_settling)
        reasons = {item.key: skew.why_ahead(item) for item in settling}
        return {key: reason for key, reason in reasons.items() if reason}

    def _skew(self) -> PoolSkew:
        return PoolSkew(self._fleet.members, self._max_skew)
