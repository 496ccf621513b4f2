"""Health wakes its watchers for news alone, and waits for none of them."""

from __future__ import annotations

import asyncio
from typing import Any

from grpc_health.v1 import health_pb2

from cluster.health import Health
from cluster.process.background import cancel

SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
)


class Watcher:
    """A call of Watch; `reads` or not."""

    def __init__(self, health: Health, *, reads: bool = True) -> None:
        self.told: list[Any] = []
        self._reads = reads
        request = health_pb2.HealthCheckRequest(service="s")
        self.task = asyncio.ensure_future(health.Watch(request, self))

    async def write(self, response: Any) -> None:
        self.told.append(response.status)
        if not self._reads:
            await asyncio.Event().wait()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_same_state_again_wakes_nobody() -> None:
    health = Health()
    watcher = Watcher(health)
    for _ in range(100):
        health.set("s", serving=True)
        await turns()
    assert health.num_changes == 1
    health.set("s", serving=False)
    await turns()
    assert watcher.told[-2:] == [SERVING, NOT_SERVING]
    await cancel([watcher.task])


async def test_a_watcher_that_does_not_read_holds_nobody_up() -> None:
    health = Health()
    health.set("s", serving=True)
    stuck, reader = Watcher(health, reads=False), Watcher(health)
    await turns()
    health.set("s", serving=False)
    await turns()
    assert reader.told == [SERVING, NOT_SERVING]
    assert stuck.told == [SERVING]
    await cancel([stuck.task, reader.task])
