"""The Scaler of a fleet that one supervisor keeps alive, on this machine or on Ray.

    operator --Scale--> router --with the reply to the next report--> supervisor
    operator <--------- router <--with the report after that one------ supervisor

The supervisor listens nowhere: who has the fleet's join token may order, as it may read status.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.dial.dialer import Dialer
from cluster.scaling.scaler import PoolState, ScaleOrder, ScalePlan
from cluster.scaling.wire import order_to_wire, plan_from_wire, pool_from_wire

TIMEOUT_S = 8.0
"""A supervisor asks every second; the router itself gives up before this."""


class SupervisedScaler:
    """See Scaler."""

    def __init__(self, dialer: Dialer, router: str) -> None:
        """`router`: host:port of the port for the fleet."""
        self._link = dialer.operator(router)

    async def pools(self) -> Sequence[PoolState]:
        """See Scaler. Empty where no supervisor has told of any."""
        answer = await self._link.members(timeout_s=TIMEOUT_S)
        return [pool_from_wire(pool) for pool in answer.pools]

    async def scale(self, order: ScaleOrder) -> ScalePlan:
        """See Scaler."""
        return plan_from_wire(await self._link.scale(order_to_wire(order), timeout_s=TIMEOUT_S))

    async def close(self) -> None:
        """See Scaler."""
        await self._link.close()
