"""What the role-free part of a worker asks of its engine."""

from __future__ import annotations

import asyncio
from typing import Protocol

from cluster.cache_change import CachedBlock
from cluster.errors import SplitserveError
from cluster.generation import EngineLoad
from cluster.rank_pace import RankPace


class EngineView(Protocol):
    """A running engine as operators and the fleet see it. All calls from the event loop."""

    @property
    def pid(self) -> int:
        """Of the engine's own process; 0 before it started."""

    @property
    def load(self) -> EngineLoad:
        """The latest that the engine told."""

    @property
    def rank_paces(self) -> list[RankPace]:
        """Of the ranks of its group in the latest steps; empty for a single one."""

    @property
    def kv_transport(self) -> str:
        """The transport in use, in words; empty when not known."""

    @property
    def lost(self) -> asyncio.Future[SplitserveError]:
        """Done, with the cause, once the engine has died by itself."""

    async def violations(self) -> list[str]:
        """Runs the engine's own checks; empty is good. Raises WorkerLost or DeadlineExceeded."""

    async def snapshot(self) -> list[CachedBlock]:
        """Every cached block, parents first. Raises WorkerLost or DeadlineExceeded."""

    async def stop(self) -> None:
        """Ends the engine's process and waits for it; idempotent."""
