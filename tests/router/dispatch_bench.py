"""A dispatcher with everything behind it, over real gRPC, and fake decode workers."""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from random import Random

from cluster.config import RouterOptions
from cluster.identity import Role
from cluster.membership.member import Member
from cluster.sampling import SamplingParams
from cluster.world import World
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.dispatch.stream import RoutedRequest, StreamEvent
from router.dispatch.time_limits import DefaultTimes, TimeLimits
from tests.router.fake_decode_worker import PAIRING, FakeDecodeWorker, until

PROMPT = list(range(1, 10))


def time_limits(whole_s: float) -> TimeLimits:
    """A client's own deadline, from now."""
    times = DefaultTimes(first_token_s=30.0, between_tokens_s=30.0)
    return times.limits(time.monotonic(), whole_s)


def request(
    request_id: str = "r1", *, timeout_s: float = 30.0, max_tokens: int = 2
) -> RoutedRequest:
    return RoutedRequest(
        request_id=request_id,
        token_ids=PROMPT,
        sampling=SamplingParams(max_tokens=max_tokens, seed=7),
        limits=time_limits(timeout_s),
    )


def prefill_member(worker_id: str = "prefill-1", **values: object) -> Member:
    base = Member(
        worker_id=worker_id,
        incarnation="i1",
        role=Role.PREFILL,
        address="127.0.0.1:9",
        pairing=PAIRING,
        model="m",
        max_context_tokens=1000,
    )
    return replace(base, **values)  # type: ignore[arg-type]


@asynccontextmanager
async def router(*workers: FakeDecodeWorker, **options: int) -> AsyncIterator[FleetPlane]:
    plane = FleetPlane(RouterOptions(**options), OwnModel(), World(chance=Random(1)))
    await plane.start()
    for worker in workers:
        await worker.start()
        await plane.store.join(worker.member())
    await until(lambda: len(plane.fleet.ready(Role.DECODE)) == len(workers))
    try:
        yield plane
    finally:
        await plane.close()
        for worker in workers:
            await worker.stop()


async def collect(plane: FleetPlane, asked: RoutedRequest) -> list[StreamEvent]:
    async with aclosing(plane.source.generate(asked)) as events:
        return [event async for event in events]


def outcome(plane: FleetPlane, name: str) -> float:
    return plane.registry.get_sample_value("splitserve_requests_total", {"outcome": name}) or 0.0


def is_idle(plane: FleetPlane) -> bool:
    """Nothing of any request is left."""
    plane_idle = plane.source._admission.num_running == 0
    return plane_idle and all(
        (item.num_in_flight, item.in_flight_tokens, item.pending_prefill_tokens) == (0, 0, 0)
        and (item.session is None or item.session.num_in_flight == 0)
        for item in plane.fleet.members
    )
