"""The page of a router process, from its start to its end."""

from __future__ import annotations

import asyncio

import httpx

from cluster.common_options import PageOptions
from cluster.config import RouterOptions
from cluster.process.loop_share import LoopShare
from cluster.process.signals import StopRequests
from cluster.world import World
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.page.listener import PageListener
from router.router_process import RouterProcess
from router.text_worker.in_process import InProcessText
from tests.router.front_fakes import byte_model


async def test_a_router_says_where_its_page_is_and_a_watcher_does_not_hold_up_its_end() -> None:
    options = RouterOptions(port=0, grpc_port=0, page=PageOptions(page_port=0))
    world, share, model = World(), LoopShare(), byte_model()
    plane = FleetPlane(options, OwnModel(), world, share=share)
    page = PageListener.of(options, plane, model.name, world, share)
    assert page is not None
    parts = (options, model, plane, InProcessText(model), StopRequests(), world)
    process = RouterProcess(*parts, share=share, page=page)
    running = asyncio.create_task(process.run())
    addresses = await process.addresses
    assert addresses.http not in page.url
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("GET", f"{page.url}events") as answer,
    ):
        lines = answer.aiter_lines()
        assert model.name in await anext(lines)
        assert (await client.get(f"http://{addresses.http}/events")).status_code == 404
        process.stop_requests.on_sigint()
        assert await running == 0
        assert [line async for line in lines if line][-1] == "data: [DONE]"
