"""What the router's tests are made of: records of workers, and planes that run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from zlib import crc32

from cluster.config import RouterOptions
from cluster.deadline import Deadline
from cluster.identity import Role
from cluster.membership.member import Member
from cluster.pairing import Pairing
from cluster.rpc import RpcServer
from cluster.world import World
from protos import router_admin_pb2
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane


class Words:
    """A PromptReader: a text has a token for each word, a chat one more."""

    async def tokens_of(
        self, asked: router_admin_pb2.PriceRequest, peer: str, deadline: Deadline
    ) -> list[int]:
        if asked.WhichOneof("prompt") == "ids":
            return list(asked.ids.ids)
        text = f"user {asked.chat}" if asked.chat else asked.text
        return [crc32(word.encode()) % 1000 for word in text.split()]


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
    own: OwnModel | None = None,
    world: World | None = None,
    **options: object,
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
    own: OwnModel | None = None, world: World | None = None, **options: object
) -> AsyncIterator[tuple[FleetPlane, str]]:
    """A plane, and the address at which workers and operators reach it."""
    async with running_plane(own, world, **options) as plane:
        server = RpcServer("127.0.0.1", 0)
        plane.register(server, Words())
        port = await server.start()
        try:
            yield plane, f"127.0.0.1:{port}"
        finally:
            await server.stop(0)
