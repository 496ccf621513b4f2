"""The router's gRPC door: a port for everybody and, where the fleet has one of its own, that one.

Clients are answered at the one and workers and operators at the other, which may have an address of
its own. They are servers apart, each with its services, its connections and its limits: what
clients send to theirs, and however large, is in nobody's way at the fleet's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import grpc

from cluster.process.background import Background, nothing_needed
from cluster.rpc import RpcServer
from cluster.world import World
from router.front.doors import DoorContext
from router.grpc_front.inference_service import SERVICE_NAME, InferenceService, add_inference
from router.grpc_front.public_port import PublicPort
from router.grpc_front.public_server import CallTerms, public_server


@dataclass(frozen=True, slots=True)
class GrpcPort:
    """0 takes a free one; without credentials it speaks in the clear."""

    number: int
    credentials: grpc.ServerCredentials | None = None
    host: str = "127.0.0.1"


class GrpcDoor:
    """Add services to each of `servers`, `start` once, `stop` once. From the event loop only."""

    def __init__(
        self,
        ports: tuple[GrpcPort, GrpcPort | None],
        limits: PublicPort,
        door: DoorContext,
        world: World,
        gateways: RpcServer | None = None,
    ) -> None:
        """`ports`: everybody's, and the fleet's. `limits` are those of the first. `gateways`: where
        a gateway asks, beside them; None: none does."""
        self._reads = Background(nothing_needed, clock=world.clock, sleep=world.sleep)
        terms = CallTerms(
            clients=(SERVICE_NAME,),
            let_in=door.let_in,
            times=door.times,
            draw=door.chance.random,
            background=self._reads,
            share=door.share,
        )
        everybodys, fleets = ports
        servers = [_server_at(everybodys, limits, terms)]
        servers[0].add(add_inference, InferenceService(door), SERVICE_NAME)
        if fleets is not None:
            servers.append(_server_at(fleets, limits.for_fleet(), replace(terms, clients=())))
        self.fleets = servers[-1]
        """Where workers and operators are answered; everybody's where there is no other."""
        self._servers: Sequence[RpcServer] = [*servers, *([] if gateways is None else [gateways])]

    async def start(self) -> int:
        """Listens, and returns everybody's port. Raises ConfigError when one cannot be had."""
        ports = [await server.start() for server in self._servers]
        return ports[0]

    async def set_ready(self, ready: bool) -> None:
        """See RpcServer."""
        for server in self._servers:
            await server.set_ready(ready)

    async def stop(self, grace_s: float) -> None:
        """See RpcServer."""
        await asyncio.gather(*(server.stop(grace_s) for server in self._servers))
        await self._reads.close()


def _server_at(port: GrpcPort, limits: PublicPort, terms: CallTerms) -> RpcServer:
    return public_server(port.host, port.number, limits, terms, port.credentials)
