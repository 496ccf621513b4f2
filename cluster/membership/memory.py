"""The list of workers: a table in the router's own memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from cluster.adapter import NOTHING_UNREAD, OfferedAdapter, UnreadAdapters
from cluster.errors import QueueFull
from cluster.generation import EngineLoad
from cluster.identity import WorkerKey
from cluster.membership.member import Member, MemberState
from cluster.membership.store import ChangeKind, Lives, MembershipChange, nobody_lives

MAX_MEMBERS = 1024


class MemoryMembership:
    """The MembershipStore of every router; it lives and dies with its process."""

    def __init__(self, lease_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease_s = lease_s
        self._clock = clock
        self._states: dict[str, MemberState] = {}
        self._watchers: list[Callable[[MembershipChange], None]] = []

    async def join(self, member: Member) -> None:
        """See `MembershipStore.join`."""
        known = self._states.get(member.worker_id)
        if known is not None and known.member.incarnation == member.incarnation:
            self._report(replace(known, member=member, heard_s=self._clock()))
            return
        if known is not None:
            self._remove(member.worker_id, ChangeKind.REPLACED)
        elif len(self._states) >= MAX_MEMBERS:
            raise QueueFull(
                f"the fleet has {MAX_MEMBERS} workers, which is the limit of one router",
                retry_after_s=self._lease_s,
            )
        state = MemberState.joined(member, self._clock())
        self._states[member.worker_id] = state
        self._tell(MembershipChange(ChangeKind.JOINED, state))

    async def beat(
        self,
        key: WorkerKey,
        load: EngineLoad,
        *,
        draining: bool,
        kv_transport: str = "",
        adapters: tuple[OfferedAdapter, ...] = (),
        is_settling: bool = False,
        unread_adapters: UnreadAdapters = NOTHING_UNREAD,
    ) -> bool:
        """See `MembershipStore.beat`."""
        known = self._find(key)
        if known is None:
            return False
        transport = kv_transport or known.member.kv_transport
        member = replace(known.member, kv_transport=transport)
        state = MemberState(
            member=member,
            load=load,
            draining=draining,
            heard_s=self._clock(),
            adapters=known.adapters if adapters == known.adapters else adapters,
            is_settling=is_settling,
            unread_adapters=unread_adapters,
        )
        self._report(state)
        return True

    def report(self, key: WorkerKey, load: EngineLoad) -> None:
        """See `MembershipStore.report`."""
        if (known := self._find(key)) is None:
            return
        state = MemberState(
            member=known.member,
            load=load,
            draining=known.draining,
            heard_s=self._clock(),
            adapters=known.adapters,
            is_settling=known.is_settling,
            unread_adapters=known.unread_adapters,
        )
        self._report(state)

    async def leave(self, key: WorkerKey) -> bool:
        """See `MembershipStore.leave`."""
        if self._find(key) is None:
            return False
        self._remove(key.worker_id, ChangeKind.LEFT)
        return True

    async def expire(self, lives: Lives = nobody_lives) -> list[Member]:
        """See `MembershipStore.expire`."""
        oldest_s = self._clock() - self._lease_s
        silent = [state for state in self._states.values() if state.heard_s < oldest_s]
        gone = [state.member for state in silent if not lives(state)]
        for member in gone:
            self._remove(member.worker_id, ChangeKind.EXPIRED)
        return gone

    def members(self) -> list[MemberState]:
        """See `MembershipStore.members`."""
        return list(self._states.values())

    def watch(self, callback: Callable[[MembershipChange], None]) -> None:
        """See `MembershipStore.watch`."""
        self._watchers.append(callback)

    def _find(self, key: WorkerKey) -> MemberState | None:
        known = self._states.get(key.worker_id)
        return known if known is not None and known.member.key == key else None

    def _report(self, state: MemberState) -> None:
        self._states[state.member.worker_id] = state
        self._tell(MembershipChange(ChangeKind.REPORTED, state))

    def _remove(self, worker_id: str, kind: ChangeKind) -> None:
        state = self._states.pop(worker_id)
        self._tell(MembershipChange(kind, state))

    def _tell(self, change: MembershipChange) -> None:
        for watcher in self._watchers:
            watcher(change)
