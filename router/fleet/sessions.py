"""The links to workers that answer: made when one joins, closed in the background when it goes."""

from __future__ import annotations

import asyncio

from cluster.identity import Role, WorkerKey
from cluster.membership.member import Member
from cluster.process.background import Background
from cluster.world import World
from router.engine_events.source import EngineEventSource
from router.fleet.pooling_link import PoolingLink
from router.fleet.unread import UnreadBytes
from router.fleet.worker_link import LinkEvents, WorkerAdapter, WorkerLink
from router.fleet.worker_session import WorkerSession


class Sessions:
    """All calls from the event loop. Tasks are `background`'s."""

    def __init__(
        self, world: World, background: Background, adapters: tuple[WorkerAdapter, ...] = ()
    ) -> None:
        """`adapters`: to workers of other engines."""
        self._world = world
        self._background = background
        self._adapters = adapters
        self._unread = UnreadBytes()
        self._closing: set[asyncio.Task[None]] = set()

    def open(self, member: Member, events: LinkEvents) -> WorkerLink:
        """Connects in the background. Whom no adapter claims is one of our own; of prefill workers
        only those come that pool."""
        for adapter in self._adapters:
            if (link := adapter.link(member, events, self._unread)) is not None:
                return link
        if member.role is Role.PREFILL:
            return PoolingLink(member, self._world, self._unread)
        session = WorkerSession(member, self._world, events, self._unread)
        session.start()
        return session

    def events_of(self, member: Member) -> EngineEventSource | None:
        """The KV events of another engine's worker; None: it is ours, or has none."""
        found = (adapter.events_of(member) for adapter in self._adapters)
        return next((source for source in found if source is not None), None)

    def close(self, link: WorkerLink, key: WorkerKey, reason: str) -> None:
        """Its requests end with WorkerLost, for this reason."""
        task = self._background.once(f"close-session-{key.worker_id}", link.close(reason))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def all_closed(self) -> None:
        """Waits for those that `close` was called for."""
        await asyncio.gather(*self._closing, return_exceptions=True)
