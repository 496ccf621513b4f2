"""The fleet's list of workers, as one router keeps it.

    join -> beat, beat, ... -> leave
                 '-- silence for the lease's length -> expired
    join with a new incarnation -> the old process is out (REPLACED), then the new one is in
    every word of how it is -> REPORTED: watchers learn loads and drains here, and nowhere else

Each router has a list of its own (`memory.py`), which its workers join and beat to: a store that
is shared holds what routers tell each other, and never this.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cluster.adapter import NOTHING_UNREAD, OfferedAdapter, UnreadAdapters
from cluster.generation import EngineLoad
from cluster.identity import WorkerKey
from cluster.membership.member import Member, MemberState


class ChangeKind(enum.StrEnum):
    """What happened to a member."""

    JOINED = "joined"
    LEFT = "left"
    EXPIRED = "expired"
    REPLACED = "replaced"
    REPORTED = "reported"
    """It said how it is: its record, its load, or whether it drains, may be new."""


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """One process came, went or said how it is; for a replaced worker REPLACED comes first, then
    JOINED."""

    kind: ChangeKind
    state: MemberState
    """As of this change; of a process that has gone, its last."""

    @property
    def member(self) -> Member:
        """Whom it is about."""
        return self.state.member


Lives = Callable[[MemberState], bool]
"""Whether there is another sign of life than beats."""


def nobody_lives(state: MemberState) -> bool:
    """Beats are all there is."""
    return False


class MembershipStore(Protocol):
    """Called from the event loop. Watchers run inside the call that changes the list."""

    async def join(self, member: Member) -> None:
        """Adds a checked member or replaces its former incarnation. Raises QueueFull when full.

        Joining again with the same incarnation updates the record and counts as a beat: REPORTED.
        """
        ...

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
        """Renews the lease. False when that process is not a member: it must join again.
        `is_settling`: it has not been ready yet. `unread_adapters`: see MemberState."""
        ...

    def report(self, key: WorkerKey, load: EngineLoad) -> None:
        """A member said how it is otherwise than by a beat, such as in a frame of its session.
        Renews the lease. Nothing happens when that process is not a member.

        As often as once a step of every worker, between its tokens: it waits for nobody.
        """
        ...

    async def leave(self, key: WorkerKey) -> bool:
        """Removes the process; False when it was not a member."""
        ...

    async def expire(self, lives: Lives = nobody_lives) -> list[Member]:
        """Removes and returns those whose lease has run out and who do not live otherwise.

        Called at least every half second, by whoever has read what had arrived before.
        """
        ...

    def members(self) -> list[MemberState]:
        """The last view, in the order of joining."""
        ...

    def watch(self, callback: Callable[[MembershipChange], None]) -> None:
        """Calls back for every change from now on; the callback must not raise."""
        ...
