"""What an operator asks of the fleet's processes, by way of the router: none but a router has to be
reachable from where operators sit."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest

from cluster.dial.dialer import Dialer
from cluster.errors import InvalidRequest
from cluster.identity import Role
from cluster.membership.member import MAX_NAME_CHARS, Member
from cluster.terminal_text import plain
from protos.membership_pb2 import SpareWorker
from protos.router_admin_pb2 import PairTrial, TryPairRequest, WorkerStatusRequest
from protos.worker_pb2 import StatusRequest, StatusResponse
from router.control.pair_trials import try_pair
from router.fleet.fleet import Fleet
from router.fleet.own_address import own_address

STATUS_TIMEOUT_S = 8.0
"""Less than an operator waits."""
MOST_TRIAL_S = 60.0


class FleetRelay:
    """Of one router. From the event loop only."""

    def __init__(
        self,
        fleet: Fleet,
        spares: Callable[[], Iterable[SpareWorker]],
        registry: CollectorRegistry,
        dialer: Dialer,
    ) -> None:
        self._fleet = fleet
        self._spares = spares
        self._registry = registry
        self._dialer = dialer

    async def status(self, asked: WorkerStatusRequest) -> StatusResponse:
        """Raises InvalidRequest for a worker that is not known or not ours, and what asking it
        raises."""
        link = self._dialer.worker_admin(self._address_of(asked.worker_id))
        try:
            request = StatusRequest(check_invariants=asked.check_invariants)
            return await link.status(request, timeout_s=STATUS_TIMEOUT_S)
        finally:
            await link.close()

    async def try_pair(self, asked: TryPairRequest) -> PairTrial:
        """See `router.control.pair_trials`. Raises InvalidRequest for what is no pair."""
        if not 0.0 < asked.timeout_s <= MOST_TRIAL_S:
            raise InvalidRequest(
                f"timeout_s is {asked.timeout_s:g}; allowed: (0, {MOST_TRIAL_S:g}]",
                param="timeout_s",
            )
        prefill = self._member(asked.prefill_worker, Role.PREFILL)
        decode = self._member(asked.decode_worker, Role.DECODE)
        return await try_pair(self._dialer, prefill, decode, asked.timeout_s)

    def metrics(self) -> str:
        """As Prometheus reads it."""
        return generate_latest(self._registry).decode()

    def _member(self, worker_id: str, role: Role) -> Member:
        for item in self._fleet.with_role(role):
            if item.key.worker_id == worker_id:
                return item.member
        raise _unknown(f"{role.value} worker", worker_id)

    def _address_of(self, worker_id: str) -> str:
        for item in self._fleet.members:
            if item.key.worker_id == worker_id:
                return own_address(item.member)
        for spare in self._spares():
            if spare.worker_id == worker_id:
                return spare.address
        raise _unknown("worker", worker_id)


def _unknown(what: str, worker_id: str) -> InvalidRequest:
    return InvalidRequest(
        f"no {what} {plain(worker_id[:MAX_NAME_CHARS])!r} is there", param="worker_id"
    )
