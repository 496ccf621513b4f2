"""Prefill workers whose blocks have another size than ours: real engines, without a model."""

from __future__ import annotations

import pytest

from cluster.sampling import SamplingParams
from tests.decode_worker.thread_fleet import (
    counted,
    expected,
    prompt_of,
    read_until_ended,
    received,
    running_fleet,
)

SIZES = [((16, 16), 64), ((64, 64), 16), ((16, 64), 32), ((8, 24), 16)]
GREEDY = SamplingParams(max_tokens=6, temperature=0.0)


@pytest.mark.parametrize(("prefill", "decode"), SIZES, ids=str)
@pytest.mark.parametrize("num_tokens", [3, 16, 64, 150])
async def test_tokens_are_those_of_one_engine_alone(
    prefill: tuple[int, int], decode: int, num_tokens: int
) -> None:
    async with running_fleet(prefill_sizes=prefill, decode_size=decode) as fleet:
        for at, name in enumerate("ab"):
            prompt = prompt_of(num_tokens, seed=at)
            await fleet.submit(name, prompt, GREEDY, fleet.prefill[at:])
            ended = await fleet.router.ended(name)
            assert ended.error.code == "" and counted(fleet.decode, "kv_transfer_failures") == {}
            assert received(fleet.router, name) == expected(prompt, GREEDY)
            assert ended.timing.prefill_worker == f"prefill-{at}"
        await fleet.all_empty()


@pytest.mark.parametrize(("prefill", "decode"), SIZES[:2], ids=str)
async def test_a_longer_prompt_reads_what_is_not_cached_from_the_middle_of_a_block(
    prefill: tuple[int, int], decode: int
) -> None:
    async with running_fleet(prefill_sizes=prefill, decode_size=decode) as fleet:
        long = prompt_of(180)
        for name, prompt in (("a", long[:90]), ("b", long)):
            await fleet.submit(name, prompt, GREEDY, fleet.prefill[:1])
            ended = await fleet.router.ended(name)
            assert received(fleet.router, name) == expected(prompt, GREEDY)
        token_bytes = 2 * 2 * 2 * 8 * 4
        num_cached = 90 // decode * decode
        granule = min(prefill[0], decode)
        assert ended.timing.kv_bytes == token_bytes * (
            -(-len(long) // granule) * granule - num_cached
        )
        await fleet.all_empty()


@pytest.mark.parametrize(("prefill", "decode"), SIZES, ids=str)
async def test_when_a_prefill_worker_stops_one_of_another_size_goes_on(
    prefill: tuple[int, int], decode: int
) -> None:
    async with running_fleet(prefill_sizes=prefill, decode_size=decode) as fleet:
        await fleet.prefill[0].server.stop(0)
        prompt = prompt_of(150)
        await fleet.submit("a", prompt, GREEDY, fleet.prefill)
        ended = await fleet.router.ended("a")
        assert ended.timing.prefill_worker == "prefill-1"
        assert received(fleet.router, "a") == expected(prompt, GREEDY)


@pytest.mark.parametrize(("prefill", "decode"), SIZES, ids=str)
async def test_blocks_that_never_verify_are_computed_here(
    prefill: tuple[int, int], decode: int
) -> None:
    async with running_fleet(prefill_sizes=prefill, decode_size=decode) as fleet:
        fleet.faults.corrupts = True
        prompt = prompt_of(150)
        await fleet.submit("a", prompt, GREEDY, fleet.prefill)
        assert (await fleet.router.ended("a")).error.code == ""
        assert received(fleet.router, "a") == expected(prompt, GREEDY)
        assert sum(counted(fleet.decode, "kv_transfer_failures").values()) >= 2
        await fleet.all_empty()


async def test_sizes_that_have_no_granule_in_common_are_refused_with_both_values() -> None:
    async with running_fleet(prefill_sizes=(12, 16), decode_size=16) as fleet:
        await fleet.submit("a", prompt_of(40), GREEDY, fleet.prefill)
        ended = await fleet.router.ended("a")
        assert ended.timing.prefill_worker == "prefill-1"
        assert counted(fleet.decode, "kv_transfer_failures") == {"pairing_mismatch": 1}


@pytest.mark.parametrize(("prefill", "decode"), SIZES[:2], ids=str)
async def test_requests_side_by_side_get_their_own_blocks(
    prefill: tuple[int, int], decode: int
) -> None:
    async with running_fleet(prefill_sizes=prefill, decode_size=decode) as fleet:
        names = [f"r{number}" for number in range(6)]
        prompts = {name: prompt_of(40 + 25 * at, seed=at % 4) for at, name in enumerate(names)}
        for name in names:
            await fleet.submit(name, prompts[name], GREEDY, fleet.prefill)
        await read_until_ended(fleet.router, set(names))
        for name in names:
            assert received(fleet.router, name) == expected(prompts[name], GREEDY)
        await fleet.all_empty()
