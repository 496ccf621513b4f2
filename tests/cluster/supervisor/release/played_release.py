"""A release whose pools do what a test says, and what was told of them."""

from __future__ import annotations

import asyncio
from typing import Any

from cluster.identity import Role
from cluster.supervisor.release.news import ReleaseNews, ReleaseRemark
from cluster.supervisor.release.release_pools import ReleasePools
from tests.cluster.scaling.played_kubernetes import PlayedDeployments, deployment, pods_of
from tests.virtual_time import VirtualTime


class PlayedRelease:
    """Two pools of a release called `chat`, with one router that is ready."""

    def __init__(self, *, prefill: int = 0, decode: int = 0) -> None:
        self.api = PlayedDeployments(deployment("prefill", prefill), deployment("decode", decode))
        self.api.routers = [{"spec": {"replicas": 1}, "status": {"readyReplicas": 1}}]
        self.api.get_ready()
        self.time = VirtualTime()
        self.told: list[ReleaseNews] = []

    def served(self, **sizes: int) -> ReleasePools:
        said = {Role(role): size for role, size in sizes.items()}
        time = self.time
        return ReleasePools(self.api, "chat", said, self.told.append, sleep=time.sleep, clock=time)

    async def stop(self, served: ReleasePools) -> None:
        """To its end, pods of pools that shrink being gone at once."""
        stopping = asyncio.create_task(served.stop())
        await self.time.advance(0.0)
        if not self.api.is_silent:
            self.api.get_ready()
        await self.time.advance(1.0)
        await stopping

    def sizes(self) -> dict[str, int]:
        items = self.api.items.items()
        return {name.removeprefix("chat-"): item["spec"]["replicas"] for name, item in items}

    def remarks(self) -> list[str]:
        return [piece.text for piece in self.told if isinstance(piece, ReleaseRemark)]


def a_pod(pool: str, suffix: str, **status: Any) -> dict[str, Any]:
    """Of a pool, with a node."""
    ((_, pod),) = pods_of(pool, suffix).items()
    return pod | {"spec": {"nodeName": "node-1"}, "status": status}


def ready(is_ready: bool = True) -> list[dict[str, str]]:
    """Its condition."""
    return [{"type": "Ready", "status": str(is_ready)}]
