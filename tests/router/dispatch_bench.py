"""A dispatcher with everything behind it, over real gRPC, and fake decode workers."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from random import Random
from zlib import crc32

from cluster.block_hash import cache_root
from cluster.identity import Role
from cluster.sampling import SamplingParams
from cluster.world import World
from router.control.plane import FleetPlane
from router.dispatch.stream import RoutedRequest, StreamEvent
from router.dispatch.time_limits import DefaultTimes, TimeLimits
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.planes import PAIRING, running_plane

PROMPT = list(range(1, 10))


def time_limits(whole_s: float) -> TimeLimits:
    """A client's own deadline, from now."""
    times = DefaultTimes(first_token_s=30.0, between_tokens_s=30.0)
    return times.limits(time.monotonic(), whole_s)


def request(
    request_id: str = "r1", *, timeout_s: float = 30.0, max_tokens: int = 2
) -> RoutedRequest:
    """Each id has a prompt of its own, as long as PROMPT: no worker has anything of it."""
    first = 0 if request_id == "r1" else 1000 + crc32(request_id.encode()) % 100_000
    return RoutedRequest(
        request_id=request_id,
        token_ids=[first + token_id for token_id in PROMPT],
        sampling=SamplingParams(max_tokens=max_tokens, seed=7),
        limits=time_limits(timeout_s),
    )


@asynccontextmanager
async def router(*workers: FakeDecodeWorker, **options: int) -> AsyncIterator[FleetPlane]:
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker)
        world = World(chance=Random(1))
        plane = await stack.enter_async_context(running_plane(world=world, **options))
        for worker in workers:
            await plane.store.join(worker.member())
        await until(lambda: len(plane.fleet.ready(Role.DECODE)) == len(workers))
        yield plane


async def collect(plane: FleetPlane, asked: RoutedRequest) -> list[StreamEvent]:
    async with aclosing(plane.source.generate(asked)) as events:
        return [event async for event in events]


def found(plane: FleetPlane, asked: RoutedRequest) -> dict[str, int]:
    """Blocks of a prompt that each worker is believed to have; those of `request` have two."""
    root, size = cache_root(PAIRING.key), PAIRING.block_size_tokens
    return plane.index.match(root, asked.packed, size).num_blocks


def outcome(plane: FleetPlane, name: str) -> float:
    return plane.registry.get_sample_value("splitserve_requests_total", {"outcome": name}) or 0.0


def is_idle(plane: FleetPlane) -> bool:
    """Nothing of any request is left."""
    admission = plane.admission
    return (admission.num_running, admission.num_unused, admission.num_queued) == (0, 0, 0) and all(
        (item.num_in_flight, item.in_flight_tokens, item.pending_prefill_tokens) == (0, 0, 0)
        and item.given == {}
        and (item.room.promised_seqs, item.room.promised_tokens) == (0, 0)
        and item.prompts.num_turns == 0
        and (item.session is None or item.session.num_in_flight == 0)
        for item in plane.fleet.members
    )
