"""Prefill workers that hang, lie, die, fail and dawdle at random: every request still ends once,
with the right tokens or with its own cancellation, and every block comes back on both sides."""

import asyncio
import random

import pytest

from cluster.sampling import SamplingParams
from cluster.world import World
from decode_worker.service import DecodeWorker
from tests.decode_worker.cruel_dialer import CruelDialer, Fault
from tests.decode_worker.decode_bench import decode_worker
from tests.decode_worker.thread_fleet import (
    expected,
    prompt_of,
    read_until_ended,
    received,
    running_fleet,
)

NUM_REQUESTS = 24


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_prefill_workers_do_requests_end_once_and_right_and_blocks_come_back(seed):
    dialer = CruelDialer(seed)
    chance = random.Random(seed)
    sampling = SamplingParams(max_tokens=6, temperature=0.9, seed=3)
    names = [f"r{number}" for number in range(NUM_REQUESTS)]
    prompts = {name: prompt_of(chance.randint(1, 60), seed=i) for i, name in enumerate(names)}
    cancelled = set()
    async with running_fleet(DecodeWorker(0.3, World(dialer=dialer))) as fleet:
        reading = asyncio.create_task(read_until_ended(fleet.router, set(names)))
        for name in names:
            targets = chance.sample(fleet.prefill, k=2)
            await fleet.submit(name, prompts[name], sampling, targets, timeout_ms=120_000)
            if chance.random() < 0.2:
                cancelled.add(name)
                await fleet.router.cancel(name)
        assert await reading == dict.fromkeys(names, 1)
        codes = {e.request_id: e.error.code for f in fleet.router.frames for e in f.ended}
        for name in names:
            if name in cancelled:
                assert codes[name] in ("", "cancelled")
            else:
                assert codes[name] == ""
                assert received(fleet.router, name) == expected(prompts[name], sampling)
        await fleet.all_empty()
    assert set(dialer.drawn) >= {Fault.HANGS, Fault.LIES, Fault.DIES}


def handoffs_of(fleet) -> list[tuple[str, bool]]:
    return [(o.worker_id, o.failed) for frame in fleet.router.frames for o in frame.handoffs]


async def test_a_frozen_engine_behind_a_live_server_costs_a_second_source_and_no_request():
    """The deadline is short: both sources and a prefill here share it."""
    sampling = SamplingParams(max_tokens=6, temperature=0.0)
    prompt = prompt_of(37)
    async with running_fleet(decode_worker(3.0)) as fleet:
        fleet.prefill[0].link.freeze()
        await fleet.submit("a", prompt, sampling, fleet.prefill, timeout_ms=6_000)
        ended = await fleet.router.ended("a")
        assert ended.error.code == ""
        assert ended.timing.prefill_worker == "prefill-1"
        assert received(fleet.router, "a") == expected(prompt, sampling)
        blamed, *others = handoffs_of(fleet)
        assert blamed == ("prefill-0", True)
        assert others in ([("prefill-1", False)], [])  # six tokens may be over before its word
        fleet.prefill[0].link.thaw()
        await fleet.all_empty()


async def test_an_engine_that_freezes_in_the_middle_of_a_prompt_is_left_with_what_was_verified():
    sampling = SamplingParams(max_tokens=6, temperature=0.0)
    async with running_fleet(decode_worker(1.0)) as fleet:
        for number in range(6):
            await fleet.submit(f"r{number}", prompt_of(60, number), sampling, fleet.prefill)
        reading = asyncio.create_task(
            read_until_ended(fleet.router, {f"r{number}" for number in range(6)})
        )
        fleet.prefill[0].link.freeze()
        assert set((await reading).values()) == {1}
        for number in range(6):
            answer = expected(prompt_of(60, number), sampling)
            assert received(fleet.router, f"r{number}") == answer
        fleet.prefill[0].link.thaw()
        await fleet.all_empty()
