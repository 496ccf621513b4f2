"""The sessions to decode workers: opened when one joins, closed in the background when it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cluster.errors import SplitserveError
from cluster.generation import EngineLoad
from cluster.identity import WorkerKey
from cluster.membership.member import Member
from cluster.process.background import Background
from cluster.world import World
from router.fleet.unread import UnreadBytes
from router.fleet.worker_session import WorkerSession


class Sessions:
    """All calls from the event loop. Tasks are `background`'s."""

    def __init__(self, world: World, background: Background) -> None:
        self._world = world
        self._background = background
        self._unread = UnreadBytes()
        self._closing: set[asyncio.Task[None]] = set()

    def open(
        self,
        member: Member,
        *,
        on_load: Callable[[EngineLoad], None],
        on_open: Callable[[], None],
        on_handoff: Callable[[WorkerKey, bool], None],
        on_mismatch: Callable[[SplitserveError], None],
    ) -> WorkerSession:
        """Connects in the background. Callbacks as in WorkerSession."""
        session = WorkerSession(
            member,
            self._world,
            on_load=on_load,
            on_open=on_open,
            on_handoff=on_handoff,
            on_mismatch=on_mismatch,
            unread=self._unread,
        )
        session.start()
        return session

    def close(self, session: WorkerSession, key: WorkerKey, reason: str) -> None:
        """Its requests end with WorkerLost, for this reason."""
        task = self._background.once(f"close-session-{key.worker_id}", session.close(reason))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def all_closed(self) -> None:
        """Waits for those that `close` was called for."""
        await asyncio.gather(*self._closing, return_exceptions=True)
