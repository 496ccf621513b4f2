"""A worker is to leave: this router says which others take over what it has cached.

of its role first; those of the other role where these have no room, or where nobody else is there

Several may leave at once: what one is expected to hand to a receiver is room that the others do not
have, until its order ends. A receiver promises no block twice (worker/exchange/promised_room.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from cluster.dial.dialer import Dialer
from cluster.errors import SplitserveError, status_of
from cluster.handed_on import handed_in_words
from cluster.membership.hold import UNKNOWN_WORKER
from cluster.prefix_room import room_blocks
from protos.membership_pb2 import HandOnAnswer, HandOnOrder
from protos.worker_pb2 import (
    CacheReceiver,
    HandOnReport,
    HandOnRequest,
    PrefillTarget,
    ReceivedPrefixes,
)
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.own_address import own_address
from router.index.prefix_index import PrefixIndex
from router.telemetry.diary import Happening

NO_RECEIVER = "no_receiver"
MAX_RECEIVERS = 64
_NOTHING: Mapping[str, int] = {}


class HandOnOrders:
    """Of one router. From the event loop only."""

    def __init__(self, fleet: Fleet, index: PrefixIndex, dialer: Dialer) -> None:
        self._fleet = fleet
        self._index = index
        self._dialer = dialer
        self._expected_tokens: Counter[str] = Counter()
        """By receiver, of orders under way."""

    async def give(self, order: HandOnOrder, *, timeout_s: float) -> HandOnAnswer:
        """What was handed on, or would be, or why nothing. A worker that dies meanwhile is such a
        reason."""
        members = {item.key.worker_id: item for item in self._fleet.members}
        item = members.get(order.worker_id)
        if item is None:
            return HandOnAnswer(
                reason=UNKNOWN_WORKER, message=f"no worker {order.worker_id!r} has joined"
            )
        cached_tokens = self._index.num_blocks_of(item.key) * _size(item)
        receivers = receivers_of(
            item,
            members.values(),
            cached_tokens,
            wanted=order.receivers,
            expected_tokens=self._expected_tokens,
        )
        if not receivers:
            return HandOnAnswer(
                reason=NO_RECEIVER,
                message=f"no other worker has room for what {order.worker_id} has cached",
                report=HandOnReport(cached_tokens=cached_tokens),
            )
        if order.dry_run:
            return HandOnAnswer(report=_foretold(cached_tokens, receivers))
        request = HandOnRequest(
            source=_target(item), receivers=receivers, max_bytes=order.max_bytes
        )
        with self._expecting(receivers, cached_tokens):
            return await self._carry_out(item, request, timeout_s)

    @contextmanager
    def _expecting(self, receivers: Sequence[CacheReceiver], cached_tokens: int) -> Iterator[None]:
        """Of what is cached, by the room that each has: a leaving worker itself shares it so."""
        total = sum(each.room_tokens for each in receivers)
        part = min(1.0, cached_tokens / total)
        expected = Counter(
            {each.worker.worker_id: math.ceil(each.room_tokens * part) for each in receivers}
        )
        self._expected_tokens += expected
        try:
            yield
        finally:
            self._expected_tokens -= expected

    async def _carry_out(
        self, item: FleetMember, request: HandOnRequest, timeout_s: float
    ) -> HandOnAnswer:
        link = self._dialer.prefix_cache(own_address(item.member))
        try:
            report = await link.hand_on(request, timeout_s=timeout_s)
        except SplitserveError as error:
            self._note(item, f"not handed on to the end: {error.message}")
            return HandOnAnswer(reason=status_of(error).code, message=error.message)
        finally:
            await link.close()
        self._note(item, handed_in_words(report))
        return HandOnAnswer(report=report)

    def _note(self, item: FleetMember, words: str) -> None:
        self._fleet.diary.note(Happening.HANDED_ON, item.key.worker_id, words)


def receivers_of(
    leaving: FleetMember,
    members: Iterable[FleetMember],
    cached_tokens: int,
    *,
    wanted: Sequence[str] = (),
    expected_tokens: Mapping[str, int] = _NOTHING,
) -> list[CacheReceiver]:
    """Who has room, most room first; see the head of the file. `wanted`: nobody else; empty: all
    others. `expected_tokens`: that others hand to a receiver, by its id."""
    others = [
        (item, room_blocks(item.load) * _size(item) - expected_tokens.get(item.key.worker_id, 0))
        for item in members
        if item is not leaving and _can_take(item, leaving)
    ]
    others = [(item, room) for item, room in others if room > 0]
    if wanted:
        others = [each for each in others if each[0].key.worker_id in wanted]
    alike = [each for each in others if each[0].member.role is leaving.member.role]
    if sum(room for _, room in alike) >= max(1, cached_tokens):
        others = alike
    others.sort(key=lambda each: -each[1])
    return [
        CacheReceiver(worker=_target(item), room_tokens=room)
        for item, room in others[:MAX_RECEIVERS]
    ]


def _can_take(item: FleetMember, leaving: FleetMember) -> bool:
    member = item.member
    if not (item.takes_work and member.pairing.is_ours) or member.prefix_cache_off:
        return False
    return member.pairing.key == leaving.member.pairing.key


def _foretold(cached_tokens: int, receivers: Sequence[CacheReceiver]) -> HandOnReport:
    return HandOnReport(
        cached_tokens=cached_tokens,
        receivers=[
            ReceivedPrefixes(worker_id=each.worker.worker_id, handed_tokens=each.room_tokens)
            for each in receivers
        ],
    )


def _target(item: FleetMember) -> PrefillTarget:
    key = item.key
    return PrefillTarget(
        worker_id=key.worker_id, incarnation=key.incarnation, address=item.member.address
    )


def _size(item: FleetMember) -> int:
    return item.member.pairing.block_size_tokens
