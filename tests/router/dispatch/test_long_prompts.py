"""What a prompt of 100,000 tokens costs those who stream meanwhile: no turn of the loop is long."""

import asyncio
import time
from dataclasses import replace
from random import Random

import pytest
from msgspec import structs

from cluster.block_hash import cache_root, chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.membership.member import Member
from router.control.plane import FleetPlane
from router.dispatch.stream import Completed
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.loop_turns import measured_turns
from tests.router.planes import PAIRING

NUM_TOKENS = 100_000
BLOCK_TOKENS = 16
HELD_S = 0.020
"""9 ms on the 2-core machine, of which the names of the blocks take half. The best of a few runs
counts: a core that others use as well is slower."""
HELD_NAMES = 4.0
"""Times what the names alone take: more than HELD_S on a core that takes longer than 5 ms."""
NUM_RUNS = 3


def allowed_s() -> float:
    """On this core."""
    packed, root = pack_tokens(long_prompt(0)), cache_root(PAIRING.key)
    took_s = []
    for _ in range(NUM_RUNS):
        start_s = time.thread_time()
        chain_names(packed, parent=root, block_size_tokens=BLOCK_TOKENS)
        took_s.append(time.thread_time() - start_s)
    return max(HELD_S, HELD_NAMES * min(took_s))


class RoomyWorker(FakeDecodeWorker):
    def member(self, **values: object) -> Member:
        pairing = replace(PAIRING, block_size_tokens=BLOCK_TOKENS)
        return super().member(pairing=pairing, max_context_tokens=2 * NUM_TOKENS, **values)


def long_prompt(seed: int) -> list[int]:
    return Random(seed).choices(range(50_000), k=NUM_TOKENS)


def blocks_of(token_ids: list[int]) -> list[CachedBlock]:
    root = cache_root(PAIRING.key)
    names = chain_names(pack_tokens(token_ids), parent=root, block_size_tokens=BLOCK_TOKENS)
    starts = range(0, len(token_ids), BLOCK_TOKENS)
    return [
        CachedBlock(name, parent, token_ids[start : start + BLOCK_TOKENS])
        for name, parent, start in zip(names, [None, *names], starts, strict=False)
    ]


async def test_a_prompt_of_100_000_tokens_holds_the_loop_for_less_than_20_ms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held_s = []
    async with router(RoomyWorker(answer_at_once=True)) as plane:
        for seed in range(NUM_RUNS):
            asked = structs.replace(request(f"r{seed}"), token_ids=long_prompt(seed))
            with measured_turns(monkeypatch) as turns:
                *_, last = await asyncio.create_task(collect(plane, asked))
            assert isinstance(last, Completed)
            held_s.append(turns.longest_s)
    assert min(held_s) < allowed_s()


async def test_kv_events_of_such_a_prompt_hold_the_loop_for_less_than_20_ms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held_s = []
    async with RoomyWorker() as worker, router() as plane:
        for run in range(NUM_RUNS):
            with measured_turns(monkeypatch) as turns:
                await hear_of(worker, plane, f"i{run}")
            held_s.append(turns.longest_s)
    assert min(held_s) < allowed_s()


async def hear_of(worker: RoomyWorker, plane: FleetPlane, incarnation: str) -> None:
    """A snapshot of all the prompt's blocks; then every second one goes, each cut out of a run."""
    worker.live = blocks_of(long_prompt(1))
    pub, replay = await worker.start_events()
    member = worker.member(incarnation=incarnation, kv_events_address=pub, kv_replay_address=replay)
    await plane.store.join(member)
    await until(lambda: plane.index.num_blocks_of(member.key) == len(worker.live))
    worker.publish(CacheChange(removed=[block.name for block in worker.live[::2]]))
    await until(lambda: plane.index.num_blocks_of(member.key) == len(worker.live) // 2)
    await worker.stop_events()
