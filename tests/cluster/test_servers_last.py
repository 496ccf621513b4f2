"""What a failed test leaves running is ended in an order that gRPC lives through."""

from __future__ import annotations

import asyncio

from cluster.rpc import RpcServer

LIMIT_S = 60.0


def test_a_server_that_a_test_has_left_is_stopped_before_its_own_tasks_are_cancelled() -> None:
    stopped: list[bool] = []

    async def serve() -> None:
        server = RpcServer("127.0.0.1", 0)
        await server.start()
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop(0)
            stopped.append(True)

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(serve())
        async with asyncio.timeout(LIMIT_S):
            await begun.wait()
        return task

    with asyncio.Runner() as runner:
        begun = asyncio.Event()
        task = runner.run(begin())
    assert stopped == [True] and task.cancelled()
