"""What the router's tests are made of: records of workers, and planes that run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from cluster.config import RouterOptions
from cluster.identity import Role
from cluster.membership.member import Member
from cluster.pairing import Pairing
from cluster.rpc import RpcServer
from cluster.world import World
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane

PAIRING = Pairing(
    weights_digest="aa",
    tokenizer_digest="bb",
    dtype="bfloat16",
    block_size_tokens=4,
    num_layers=2,
    num_kv_heads=1,
    head_dim=8,
)


def member_of(role: Role, worker_id: str, **values: object) -> Member:
    """A worker's record; nobody listens at its address unless `values` say where."""
    base = Member(
        worker_id=worker_id,
        incarnation="i1",
        role=role,
        address="127.0.0.1:9",
        pairing=PAIRING,
        model="m",
        max_context_tokens=1000,
    )
    return replace(base, **values)  # type: ignore[arg-type]


def prefill_member(worker_id: str = "prefill-1", **values: object) -> Member:
    return member_of(Role.PREFILL, worker_id, **values)


@asynccontextmanager
async def running_plane(
    own: OwnModel | None = None, world: World | None = None, **options: float
) -> AsyncIterator[FleetPlane]:
    given = RouterOptions(**options)  # type: ignore[arg-type]
    plane = FleetPlane(given, own or OwnModel(), world or World())
    await plane.start()
    try:
        yield plane
    finally:
        await plane.close()


@asynccontextmanager
async def served_plane(
    own: OwnModel | None = None, world: World | None = None, **options: float
) -> AsyncIterator[tuple[FleetPlane, str]]:
    """A plane, and the address at which workers and operators reach it."""
    async with running_plane(own, world, **options) as plane:
        server = RpcServer("127.0.0.1", 0)
        plane.register(server)
        port = await server.start()
        try:
            yield plane, f"127.0.0.1:{port}"
        finally:
            await server.stop(0)
