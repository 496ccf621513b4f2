"""What a container says that no runtime could begin."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.mini_cluster.container_run import ContainerRun
from tests.mini_cluster.runtime import Container


async def test_why_a_runtime_cannot_begin_it_is_told_and_it_is_tried_again(tmp_path: Path) -> None:
    told, is_told = list[str](), asyncio.Event()

    async def start() -> Container:
        raise AssertionError(f"image not known, {len(told)} times")

    def changed() -> None:
        waiting = made.status["state"]["waiting"]
        assert waiting["reason"] == "CreateContainerError"
        told.append(waiting["message"])
        if len(told) == 2:
            is_told.set()

    container = {"name": "worker", "image": "worker:1"}
    made = ContainerRun(container, start, "127.0.0.1", tmp_path / "log", changed)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        running = group.create_task(made.run("Always"))
        await is_told.wait()
        await made.leave(0.0)
        await running
    assert told[:2] == ["image not known, 0 times", "image not known, 1 times"]
