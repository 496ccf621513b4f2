"""A router that picks for a gateway, in front of vLLM servers on real ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from cluster.common_options import VllmOptions
from cluster.config import RouterOptions
from cluster.identity import Role
from cluster.kv_shape import KvShape
from cluster.process.signals import StopRequests
from cluster.world import World
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.router_process import RouterProcess
from router.text_worker.in_process import InProcessText
from router.vllm.introduction import FrontedModel
from tests.free_ports import free_port
from tests.router.front_fakes import byte_model, until
from tests.router.picker.http_vllm import HttpVllm, http_vllm


@dataclass
class Behind:
    """`picker` is where a gateway asks."""

    picker: str
    plane: FleetPlane
    servers: list[HttpVllm]

    @property
    def num_in_flight(self) -> int:
        return sum(item.num_in_flight for item in self.plane.fleet.members)


@asynccontextmanager
async def behind(
    num_servers: int = 2, *, role: str = "both", **options: object
) -> AsyncIterator[Behind]:
    async with AsyncExitStack() as opened:
        servers = [await opened.enter_async_context(http_vllm()) for _ in range(num_servers)]
        port = free_port()
        named = ",".join(f"http://{server.address},role={role}" for server in servers)
        chosen = RouterOptions(
            port=0,
            grpc_port=0,
            ext_proc_port=port,
            vllm_servers=VllmOptions(vllm=named),
            beat_interval_s=0.05,
            **options,  # type: ignore[arg-type]
        )
        model, world = byte_model(), World()
        shape = KvShape(num_layers=2, num_planes=2, num_kv_heads=1, head_dim=8)
        fronted = FrontedModel(
            name=model.name,
            weights_digest="aa",
            tokenizer_digest="bb",
            kv_shape=shape,
            encode=model.tokenizer.encode,
        )
        plane = FleetPlane(chosen, OwnModel(), world, fronted=fronted)
        parts = (chosen, model, plane, InProcessText(model), StopRequests(), world)
        process = RouterProcess(*parts, passing=plane.passing)
        running = asyncio.create_task(process.run())
        try:
            await until(lambda: _num_ready(plane) == num_servers, "all servers have joined")
            yield Behind(f"127.0.0.1:{port}", plane, servers)
        finally:
            process.stop_requests.on_sigint()
            await running


def _num_ready(plane: FleetPlane) -> int:
    return len(plane.fleet.ready(Role.DECODE))
