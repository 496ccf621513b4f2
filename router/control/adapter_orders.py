"""An operator has adapters loaded and unloaded: every worker of the fleet is told, all at once."""

from __future__ import annotations

import asyncio
from typing import Protocol

from cluster.adapter import check_name
from cluster.dial.dialer import Dialer, OperatorLink
from cluster.errors import InvalidRequest, SplitserveError, status_of
from protos.membership_pb2 import AdapterAnswer, AdapterOutcome
from protos.worker_pb2 import LoadAdapterRequest, UnloadAdapterRequest
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember

MAX_PATH_CHARS = 1024
LOAD_TIMEOUT_S = 60.0
"""Of each worker: it reads files, perhaps from far away."""


class _Order(Protocol):
    async def __call__(self, link: OperatorLink, *, timeout_s: float) -> AdapterOutcome: ...


class AdapterOrders:
    """Of one router. From the event loop only. A worker that joins later has what lies in its
    folder, and no order of before."""

    def __init__(self, fleet: Fleet, dialer: Dialer) -> None:
        self._fleet, self._dialer = fleet, dialer

    async def load(self, request: LoadAdapterRequest) -> AdapterAnswer:
        """What came of it at each worker. Raises InvalidRequest for no name and no path."""
        check_name(request.name)
        if not 1 <= len(request.path) <= MAX_PATH_CHARS:
            raise InvalidRequest(
                f"the path of an adapter has {len(request.path)} characters; allowed: 1 to "
                f"{MAX_PATH_CHARS}",
                param="lora_path",
            )

        async def order(link: OperatorLink, *, timeout_s: float) -> AdapterOutcome:
            done = await link.load_adapter(request, timeout_s=timeout_s)
            return AdapterOutcome(digest=done.digest)

        return await self._tell_all(order)

    async def unload(self, request: UnloadAdapterRequest) -> AdapterAnswer:
        """As `load`; nothing is amiss where a worker does not have it."""
        check_name(request.name)

        async def order(link: OperatorLink, *, timeout_s: float) -> AdapterOutcome:
            await link.unload_adapter(request, timeout_s=timeout_s)
            return AdapterOutcome()

        return await self._tell_all(order)

    async def _tell_all(self, order: _Order) -> AdapterAnswer:
        members = [item for item in self._fleet.members if item.member.version]
        outcomes = await asyncio.gather(*(self._tell(item, order) for item in members))
        return AdapterAnswer(outcomes=outcomes)

    async def _tell(self, item: FleetMember, order: _Order) -> AdapterOutcome:
        link = self._dialer.operator(item.member.address)
        try:
            outcome = await order(link, timeout_s=LOAD_TIMEOUT_S)
        except SplitserveError as error:
            outcome = AdapterOutcome(code=status_of(error).code, message=error.message)
        finally:
            await link.close()
        outcome.worker_id = item.key.worker_id
        return outcome
