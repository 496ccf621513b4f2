"""Before a worker leaves others take over what it has cached, by way of a router, which says who.
Whatever comes of it, the worker leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.dial.dialer import Dialer
from cluster.errors import SplitserveError
from cluster.logs import get_logger
from protos.membership_pb2 import HandOnOrder

HAND_ON_S = 20.0
"""At most. A cache of 8 GB takes as long at 400 MB/s, a fast network's part of a second or two."""
_log = get_logger("cache_heirs")


class CacheHeirs:
    """Of the workers of one router. From the event loop."""

    def __init__(self, router: str, dialer: Callable[[], Dialer]) -> None:
        """`router`: host:port."""
        self._router = router
        self._dialer = dialer

    async def take_over(
        self, worker_id: str, receivers: Sequence[str] = (), *, limit_s: float = HAND_ON_S
    ) -> None:
        """Returns within that time. Never raises for what others do. `receivers`: nobody else;
        empty: as the router sees fit."""
        link = self._dialer().supervisor(self._router)
        try:
            order = HandOnOrder(worker_id=worker_id, receivers=receivers)
            answer = await link.hand_on(order, timeout_s=limit_s)
            why = answer.message if answer.reason else ""
        except SplitserveError as failure:
            why = failure.message
        finally:
            await link.close()
        if why:
            _log.warning("a cache is lost with its worker", worker=worker_id, cause=why)
