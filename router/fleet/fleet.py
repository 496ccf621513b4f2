"""The workers of this router, kept in step with the membership store.

    joined -> index slot, event follower, session (decode)  -> takes work
    left, expired, replaced -> session closed (its requests end with WorkerLost), follower
                               stopped, index and estimates forgotten: all in the same call

A prefill and a decode worker whose pairings differ are both members and never meet; said once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from cluster.cache_change import CacheChange
from cluster.dial.dialer import Dialer
from cluster.errors import NoWorker, PairingMismatch, SplitserveError
from cluster.generation import EngineLoad
from cluster.identity import Role, WorkerKey
from cluster.kv_events.subscriber import KvEventSubscriber
from cluster.logs import get_logger
from cluster.membership.member import Member
from cluster.membership.store import ChangeKind, MembershipChange, MembershipStore
from cluster.pairing import check_pairing
from router.fleet.cooldown import Cooldown
from router.fleet.member import FleetMember
from router.fleet.worker_session import WorkerSession
from router.index.prefix_index import PrefixIndex
from router.pricing.estimates import Estimates
from router.telemetry.metrics import RouterMetrics

EXPIRY_INTERVAL_S = 0.5
NO_WORKER_GRACE_S = 3.0
"""How long a request waits for a decode worker: longer than a restarted one takes to join again."""
RETRY_AFTER_S = 1.0

_log = get_logger("fleet")


class Fleet:
    """All calls from the event loop. `start` once it runs, `close` at shutdown."""

    def __init__(
        self,
        store: MembershipStore,
        index: PrefixIndex,
        estimates: Estimates,
        metrics: RouterMetrics,
        *,
        dialer: Dialer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._dialer = dialer
        self._index = index
        self._estimates = estimates
        self._metrics = metrics
        self._clock = clock
        self._members: dict[WorkerKey, FleetMember] = {}
        self._mismatches: dict[tuple[str, str], str] = {}
        self._changed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self._expirer: asyncio.Task[None] | None = None
        store.watch(self._on_change)
        for role in Role:
            metrics.watch_members(role.value, partial(self._num_members, role))

    @property
    def members(self) -> list[FleetMember]:
        """Everyone, in the order of joining."""
        return list(self._members.values())

    @property
    def mismatches(self) -> tuple[str, ...]:
        """Why some prefill and decode workers are never paired, in words."""
        return tuple(self._mismatches.values())

    def find(self, key: WorkerKey) -> FleetMember | None:
        """None when that process is not a member."""
        return self._members.get(key)

    def with_role(self, role: Role) -> list[FleetMember]:
        """Members of one role, whatever their state."""
        return [item for item in self._members.values() if item.member.role is role]

    def ready(self, role: Role) -> list[FleetMember]:
        """Members of one role that take work now."""
        return [item for item in self.with_role(role) if item.takes_work]

    def why_not_ready(self) -> str | None:
        """None when a request that came now could be served; else what is missing, in words."""
        if self.ready(Role.DECODE):
            return None
        num_members = len(self.with_role(Role.DECODE))
        if not num_members:
            return "no decode worker has joined"
        return f"none of {num_members} decode workers is connected and takes new work"

    async def wait_for_decode(self, deadline_s: float) -> None:
        """Returns once some decode worker takes work. Raises NoWorker after a short grace."""
        give_up_s = min(deadline_s, self._clock() + NO_WORKER_GRACE_S)
        while (reason := self.why_not_ready()) is not None:
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, give_up_s - self._clock())):
                    await self._changed.wait()
            except TimeoutError:
                raise NoWorker(
                    f"{reason}; start one, or try again in {RETRY_AFTER_S:.0f} s",
                    retry_after_s=RETRY_AFTER_S,
                ) from None

    def note_load(self, key: WorkerKey, load: EngineLoad, *, draining: bool | None = None) -> None:
        """A worker said how it is: with a beat (which also knows `draining`) or in a frame."""
        item = self._members.get(key)
        if item is None:
            return
        item.load = load
        self._estimates.prefill.heard(load.prefill_tokens_per_s)
        if draining is not None and draining != item.draining:
            item.draining = draining
            self._changed.set()

    def note_handoff(self, key: WorkerKey, failed: bool) -> None:
        """How a handoff from a prefill worker went, as its reader says."""
        item = self._members.get(key)
        if item is None or item.is_decode:
            return
        if not failed:
            item.cooldown.succeeded()
        elif (rest_s := item.cooldown.failed()) is not None:
            _log.warning("a prefill worker rests", worker_id=key.worker_id, rest_s=rest_s)

    def _num_members(self, role: Role) -> int:
        return len(self.with_role(role))

    def start(self) -> None:
        """Begins to remove workers that fall silent."""
        self._expirer = asyncio.create_task(self._expire(), name="membership-expiry")

    async def close(self) -> None:
        """Ends every session and follower; idempotent."""
        if self._expirer is not None:
            self._expirer.cancel()
            await asyncio.gather(self._expirer, return_exceptions=True)
        for key in list(self._members):
            self._remove(key, "is cut off: the router stops")
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _expire(self) -> None:
        while True:
            await self._store.expire()
            await asyncio.sleep(EXPIRY_INTERVAL_S)

    def _on_change(self, change: MembershipChange) -> None:
        member = change.member
        _log.info(
            f"worker {change.kind}",
            worker_id=member.worker_id,
            role=member.role.value,
            address=member.address,
        )
        if change.kind is ChangeKind.JOINED:
            self._add(member)
        else:
            self._remove(member.key, f"has {_PARTING[change.kind]}")
        self._changed.set()

    def _add(self, member: Member) -> None:
        item = FleetMember(member, cooldown=Cooldown(self._clock))
        self._note_mismatches(member)
        self._members[member.key] = item
        if member.kv_events_address:
            self._index.add_worker(member.key, member.pairing.block_size_tokens)
            item.follower = asyncio.create_task(
                self._follower(member).run(), name=f"kv-events-{member.worker_id}"
            )
        if item.is_decode:
            item.session = WorkerSession(
                member,
                self._dialer,
                on_load=lambda load: self.note_load(member.key, load),
                on_open=self._changed.set,
                on_handoff=self.note_handoff,
                on_mismatch=lambda error: self._turn_away(member.key, error),
            )
            item.session.start()

    def _turn_away(self, key: WorkerKey, error: SplitserveError) -> None:
        """Somebody else answers at this member's address: it is out until it joins anew."""
        _log.error("a member is removed", worker_id=key.worker_id, reason=error.message)
        self._own(asyncio.create_task(self._forget(key)))

    async def _forget(self, key: WorkerKey) -> None:
        await self._store.leave(key)

    def _follower(self, member: Member) -> KvEventSubscriber:
        def apply(change: CacheChange) -> None:
            self._metrics.event_orphans.inc(self._index.apply(member.key, change))

        return KvEventSubscriber(
            member.kv_events_address,
            member.kv_replay_address,
            apply,
            on_gap=self._metrics.event_gaps.inc,
            on_resync=self._metrics.event_resyncs.inc,
        )

    def _remove(self, key: WorkerKey, reason: str) -> None:
        item = self._members.pop(key, None)
        if item is None:
            return
        self._index.remove_worker(key)
        self._estimates.prefill.forget(key)
        self._mismatches = {
            pair: text for pair, text in self._mismatches.items() if key.worker_id not in pair
        }
        self._own(asyncio.create_task(_part_with(item, reason)))

    def _own(self, task: asyncio.Task[None]) -> None:
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _note_mismatches(self, member: Member) -> None:
        for other in self._members.values():
            if other.member.role is member.role:
                continue
            pair = (member, other.member) if member.role is Role.DECODE else (other.member, member)
            decode, prefill = pair
            try:
                check_pairing(decode.pairing, prefill.pairing, peer=prefill.worker_id)
            except PairingMismatch as mismatch:
                text = f"{decode.worker_id}: {mismatch.message}"
                self._mismatches[(decode.worker_id, prefill.worker_id)] = text
                _log.warning("two workers will never be paired", reason=text)


_PARTING = {
    ChangeKind.LEFT: "left the fleet",
    ChangeKind.EXPIRED: "fallen silent",
    ChangeKind.REPLACED: "been restarted",
}


async def _part_with(item: FleetMember, reason: str) -> None:
    if item.session is not None:
        await item.session.close(reason)
    if item.follower is not None:
        item.follower.cancel()
        await asyncio.gather(item.follower, return_exceptions=True)
