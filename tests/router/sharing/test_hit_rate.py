"""Three routers find as much of what is cached as one does: conversations in virtual time, whose
turns go to any router. Workers have no KV events: all that a router knows of others' prompts is
what they have told it over the store. What tenants were served is not looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from random import Random

from cluster.block_hash import chain_names, pack_tokens
from cluster.config import RouterOptions
from cluster.identity import Role
from cluster.process.background import cancel
from cluster.sampling import SamplingParams
from cluster.world import World
from protos import worker_pb2
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.dispatch.stream import RoutedRequest
from router.dispatch.time_limits import TimeLimits
from router.sharing.circle import CirclePlace
from router.store.topics import StoreTopic
from tests.router.planes import PAIRING, member_of
from tests.router.sharing.memory_store import MemoryStore
from tests.router.simulated_fleet import (
    NUM_SEATS,
    TOKEN_MS,
    SimulatedDecode,
    SimulatedLinks,
    SimulatedPrefill,
)
from tests.virtual_loop import run_virtually

NUM_PREFILL, NUM_DECODE = 2, 2
NUM_CONVERSATIONS, NUM_TURNS = 16, 8
TURN_TOKENS = 200
MOST_POINTS = 3.0
"""That the hit rate of three may lie below that of one."""
SIZE = PAIRING.block_size_tokens


class CachingPrefill(SimulatedPrefill):
    """Forgets nothing of what it computed."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(member_of(Role.PREFILL, worker_id, max_context_tokens=100_000))
        self._names: set[bytes] = set()
        self.num_found = self.num_asked = 0

    def num_cached(self, token_ids: Sequence[int]) -> int:
        packed = pack_tokens(token_ids)
        names = chain_names(packed, parent=b"", block_size_tokens=SIZE)
        num_found = sum(name in self._names for name in names) * SIZE
        self._names.update(names)
        self.num_found += num_found
        self.num_asked += len(token_ids)
        return num_found


class SlowAtPrompts(SimulatedDecode):
    """It leaves them to prefill workers."""

    def _load(self) -> worker_pb2.EngineLoad:
        load = super()._load()
        load.prefill_token_ms = 10 * TOKEN_MS
        return load


def _decode_of(worker_id: str, prefill: dict[str, SimulatedPrefill]) -> SimulatedDecode:
    """As one router has it: their requests meet at the prefill workers."""
    terms = {"max_context_tokens": 100_000, "max_num_seqs": NUM_SEATS, "prefix_cache_off": True}
    member = member_of(Role.DECODE, worker_id, address=worker_id, **terms)
    return SlowAtPrompts(member, prefill)


@dataclass(slots=True)
class Routers:
    """All of one fleet."""

    planes: list[FleetPlane]
    prefill: dict[str, CachingPrefill]

    async def ask(self, at: int, name: str, token_ids: list[int]) -> None:
        clock = asyncio.get_running_loop().time
        limits = TimeLimits(
            arrived_s=clock(), first_token_s=30.0, between_tokens_s=60.0, clock=clock
        )
        sampling = SamplingParams(max_tokens=4, seed=1)
        request = RoutedRequest(
            request_id=name, token_ids=token_ids, sampling=sampling, limits=limits
        )
        async with aclosing(self.planes[at].source.generate(request)) as events:
            async for _ in events:
                pass

    @property
    def hit_rate(self) -> float:
        """Of all prompt tokens, the percentage that nobody computed again."""
        found = sum(each.num_found for each in self.prefill.values())
        return 100 * found / sum(each.num_asked for each in self.prefill.values())


@asynccontextmanager
async def routers(
    num_routers: int, not_told: StoreTopic = StoreTopic.SHARES
) -> AsyncIterator[Routers]:
    """With sessions at all workers, and each other's names."""
    clock = asyncio.get_running_loop().time
    prefill = {name: CachingPrefill(name) for name in (f"prefill-{n}" for n in range(NUM_PREFILL))}
    store = MemoryStore(clock)
    store.refused = {StoreTopic.SHARES, not_told}
    found = Routers([], prefill)
    runs = [asyncio.create_task(each.run()) for each in prefill.values()]
    try:
        async with AsyncExitStack() as stack:
            for number in range(num_routers):
                decode = [_decode_of(f"decode-{n}", dict(prefill)) for n in range(NUM_DECODE)]
                for each in decode:
                    runs += [asyncio.create_task(each.run()), asyncio.create_task(each.own.run())]
                world = World(dialer=SimulatedLinks(decode), clock=clock, chance=Random(number))
                place = CirclePlace(f"router-{number}", store)
                found.planes.append(await stack.enter_async_context(_plane_of(world, place)))
                for worker in (*prefill.values(), *decode):
                    await found.planes[-1].store.join(worker.member)
            await asyncio.sleep(1.0)
            yield found
    finally:
        await cancel(runs)


@asynccontextmanager
async def _plane_of(world: World, place: CirclePlace) -> AsyncIterator[FleetPlane]:
    plane = FleetPlane(RouterOptions(worker_lease_s=1e6), OwnModel(), world, circle=place)
    await plane.start()
    try:
        yield plane
    finally:
        await plane.close()


async def _converse(found: Routers, number: int, chance: Random) -> None:
    """Each turn at a router that is drawn, as behind a load balancer."""
    said: list[int] = []
    await asyncio.sleep(chance.uniform(0, 10))
    for turn in range(NUM_TURNS):
        said += [chance.randrange(50_000) for _ in range(TURN_TOKENS)]
        at = chance.randrange(3) % len(found.planes)
        await found.ask(at, f"{number}-{turn}", list(said))
        await asyncio.sleep(chance.uniform(0.2, 3))


async def _hit_rate(num_routers: int, not_told: StoreTopic = StoreTopic.SHARES) -> float:
    async with routers(num_routers, not_told) as found:
        talks = (_converse(found, n, Random(n)) for n in range(NUM_CONVERSATIONS))
        await asyncio.gather(*talks)
        return found.hit_rate


def test_three_routers_have_the_hit_rate_of_one_within_three_points() -> None:
    one, three = run_virtually(_hit_rate(1)), run_virtually(_hit_rate(3))
    silent = run_virtually(_hit_rate(3, StoreTopic.PREDICTIONS))
    said = f"one router {one:.1f} %, three {three:.1f} %, three that tell no prompts {silent:.1f} %"
    assert one > 60, said
    assert three > one - MOST_POINTS, said
    assert three > silent + MOST_POINTS, said
