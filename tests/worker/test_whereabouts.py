"""A worker that listens everywhere, and a router whose name is not known yet."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from cluster.identity import Role
from cluster.world import World
from tests.scripted_dialer import ScriptedDialer, ScriptedRouter
from tests.virtual_time import VirtualTime
from tests.worker.worker_bench import PATIENCE_S, options_for, running_worker


def late_name(monkeypatch: pytest.MonkeyPatch, name: str, num_failures: int) -> list[str]:
    """Nobody knows the name at first; the list grows by each time that it is asked for."""
    asked: list[str] = []
    known = socket.getaddrinfo

    def getaddrinfo(host: str, *rest: Any) -> Any:
        if host != name:
            return known(host, *rest)
        asked.append(host)
        if len(asked) <= num_failures:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known("127.0.0.1", *rest)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


async def pass_until(time: VirtualTime, condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await time.advance(0.1)


@pytest.mark.parametrize("worker_id", ["decode-7", None])
async def test_a_worker_joins_once_the_name_of_its_router_is_known(
    monkeypatch: pytest.MonkeyPatch, worker_id: str | None
) -> None:
    asked = late_name(monkeypatch, "router", num_failures=8)
    time = VirtualTime()
    router = ScriptedRouter(beat_interval_s=0.5, clock=time)
    router.is_there = True
    world = World(dialer=ScriptedDialer(router), clock=time, sleep=time.sleep)
    options = options_for(
        Role.DECODE, "router:50051", host="0.0.0.0", insecure=True, worker_id=worker_id
    )
    async with running_worker(options, world=world):
        await pass_until(time, lambda: router.members)
        (member,) = router.members
        port = member.address.removeprefix("127.0.0.1:")
        assert member.worker_id == (worker_id or f"decode-127.0.0.1-{port}")
        assert member.kv_events_address.startswith("tcp://127.0.0.1:")
    assert len(asked) == 9


async def test_a_worker_with_an_id_loads_its_model_while_its_routers_name_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = late_name(monkeypatch, "router", num_failures=1_000_000)
    time = VirtualTime()
    options = options_for(
        Role.DECODE, "router:50051", host="0.0.0.0", insecure=True, worker_id="decode-7"
    )
    async with running_worker(options, world=World(clock=time, sleep=time.sleep)) as worker:
        await pass_until(time, lambda: len(asked) > 3)
        assert worker.link.pid is not None
        assert not worker.process.address.done()
        worker.process.stop_requests.on_sigterm()
        assert await worker.ended() == 0
