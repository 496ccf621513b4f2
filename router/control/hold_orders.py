"""An operator keeps requests from a worker, or lets them come again: judged first, then done."""

from __future__ import annotations

from cluster.identity import Role
from cluster.membership.hold import UNKNOWN_WORKER, HoldKind, hold_kind_of
from protos.membership_pb2 import HoldAnswer, HoldOrder
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.index.prefix_index import PrefixIndex

MAX_NAMED = 16
"""Other workers that an answer names."""
LAST_WORKER = "last_worker"


class HoldOrders:
    """Of one router; the worker tells the others. From the event loop only."""

    def __init__(self, fleet: Fleet, index: PrefixIndex) -> None:
        self._fleet = fleet
        self._index = index

    def give(self, order: HoldOrder) -> HoldAnswer:
        """What it does, or would do, or why not. Raises InvalidRequest for no kind of hold."""
        kind, holds = hold_kind_of(order.kind), self._fleet.holds
        members = {item.key.worker_id: item for item in self._fleet.members}
        item, before = members.get(order.worker_id), holds.of(order.worker_id)
        if item is None and not before.is_on:
            known = ", ".join(sorted(members)[:MAX_NAMED]) or "none"
            return HoldAnswer(
                reason=UNKNOWN_WORKER,
                message=f"no worker {order.worker_id!r} has joined; there are: {known}",
            )
        answer = HoldAnswer(worker_id=order.worker_id, kind_before=before.kind, kind=kind)
        if item is not None:
            self._describe(item, answer)
            if kind is not HoldKind.NONE and self._is_last(item) and not order.force:
                return HoldAnswer(reason=LAST_WORKER, message=_why_last(item))
        if not order.dry_run:
            holds.order(order.worker_id, kind)
        return answer

    def _describe(self, item: FleetMember, answer: HoldAnswer) -> None:
        load, given = item.load, item.num_in_flight + item.elsewhere.num_requests
        answer.role = item.member.role.value
        answer.num_requests = max(given, load.num_running + load.num_waiting)
        size = item.member.pairing.block_size_tokens
        answer.cached_tokens = self._index.num_blocks_of(item.key) * size
        answer.others.extend(self._others(item)[:MAX_NAMED])

    def _others(self, item: FleetMember) -> list[str]:
        """Of its role, that take new requests."""
        others = self._fleet.open(item.member.role)
        return [each.key.worker_id for each in others if each is not item]

    def _is_last(self, item: FleetMember) -> bool:
        """True where nobody would decode any more. Without prefill workers decode workers compute
        prompts themselves."""
        return item.member.role is Role.DECODE and item.takes_work and not self._others(item)


def _why_last(item: FleetMember) -> str:
    return (
        f"{item.key.worker_id} is the only decode worker that takes requests: without it all are "
        "refused; start another one first, or say --force"
    )
