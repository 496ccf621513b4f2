"""The HTTP server's own end: asked for, or a loss that ends the router."""

from __future__ import annotations

import asyncio

from tests.router.front_fakes import running_front, until


async def test_a_server_that_ends_unasked_is_a_loss() -> None:
    async with running_front() as front:
        front.server._server.should_exit = True
        await until(lambda: bool(front.losses), "the loss is told")
        assert front.losses[0].name == "http"


async def test_a_server_that_fails_is_a_loss_with_its_cause() -> None:
    async with running_front() as front:
        front.server._server.on_tick = broken  # type: ignore[method-assign]
        await until(lambda: bool(front.losses), "the loss is told")
        assert "no tick" in str(front.losses[0])


async def test_a_server_that_is_stopped_is_no_loss() -> None:
    async with running_front() as front:
        await asyncio.gather(front.server.stop(), front.server.stop())
    assert front.losses == []


async def broken(_count: int) -> bool:
    raise ValueError("no tick")
