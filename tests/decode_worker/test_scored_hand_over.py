"""Prompts whose own tokens are scored, computed by prefill workers: real engines, transfer and
gRPC; the scores are one engine's, bit for bit, and each is told once."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cluster.beam_search import BeamSearch
from cluster.generation import PromptToken
from cluster.sampling import SamplingParams
from cluster.wire import prompt_token_from_wire
from cluster.world import World
from decode_worker.service import DecodeWorker
from engine.contract.commands import GenerateRequest
from engine.offline.queue import generate
from tests.decode_worker.cruel_dialer import CruelDialer, Fault
from tests.decode_worker.decode_bench import RouterEnd, decode_worker
from tests.decode_worker.engine_thread import fake_engine
from tests.decode_worker.thread_fleet import (
    ROOT,
    counted,
    expected,
    prompt_of,
    read_until_ended,
    received,
    running_fleet,
)


@pytest.fixture
async def fleet() -> AsyncIterator[Any]:
    async with running_fleet() as running:
        yield running


def scored(max_tokens: int = 4, **changes: Any) -> SamplingParams:
    given = {"temperature": 0.9, "seed": 3, "prompt_logprobs": 2} | changes
    return SamplingParams(max_tokens=max_tokens, **given)


def scores_alone(prompt: list[int], sampling: SamplingParams) -> list[PromptToken]:
    """One engine's that does it all."""
    engine, _ = fake_engine()
    body = GenerateRequest(
        request_id="alone",
        token_ids=prompt,
        sampling=sampling,
        cache_root=ROOT,
        timeout_ms=math.inf,
    )
    (completion,) = generate(engine, [body])
    return completion.prompt


def told(router: RouterEnd, request_id: str) -> list[PromptToken]:
    """In the order in which they came, without a gap; all before the first token."""
    found: list[PromptToken] = []
    has_tokens = False
    for frame in router.frames:
        for prompt in frame.prompts:
            if prompt.request_id == request_id:
                assert not has_tokens
                assert prompt.first_index == len(found) + 1
                found += map(prompt_token_from_wire, prompt.tokens)
        has_tokens |= any(tokens.request_id == request_id for tokens in frame.tokens)
    return found


@pytest.mark.parametrize("num_prefill", [0, 1])
@pytest.mark.parametrize("num_tokens", [1, 3, 16, 37, 100])
async def test_scores_and_tokens_are_those_of_one_engine(
    fleet: Any, num_tokens: int, num_prefill: int
) -> None:
    prompt, sampling = prompt_of(num_tokens), scored(n=2)
    await fleet.submit("a", prompt, sampling, fleet.prefill[:num_prefill])
    ended = await fleet.router.ended("a")
    assert ended.error.code == ""
    assert told(fleet.router, "a") == scores_alone(prompt, sampling)
    assert received(fleet.router, "a") == expected(prompt, sampling)
    assert ended.timing.prefill_worker == ("prefill-0" if num_prefill else "")
    await fleet.all_empty()


async def test_a_prompt_that_is_cached_on_both_sides_is_scored_again_by_the_prefill_worker(
    fleet: Any,
) -> None:
    prompt, sampling = prompt_of(40), scored()
    for name in ("first", "again"):
        await fleet.submit(name, prompt, sampling, fleet.prefill[:1])
        ended = await fleet.router.ended(name)
        assert told(fleet.router, name) == scores_alone(prompt, sampling)
        assert ended.timing.prefill_worker == "prefill-0"
        assert ended.usage.cached_tokens == 0
    assert ended.timing.kv_bytes == 0
    await fleet.all_empty()


@pytest.mark.parametrize("changes", [{"max_tokens": 1}, {"prompt_logprobs": 0}, {"n": 3}])
async def test_one_token_no_alternatives_and_several_choices(fleet: Any, changes: Any) -> None:
    prompt, sampling = prompt_of(21), scored(**changes)
    await fleet.submit("a", prompt, sampling, fleet.prefill)
    await fleet.router.ended("a")
    assert told(fleet.router, "a") == scores_alone(prompt, sampling)
    assert received(fleet.router, "a") == expected(prompt, sampling)


async def test_the_prompt_of_a_beam_search_is_scored_too(fleet: Any) -> None:
    sampling = scored(temperature=0.0, beams=BeamSearch(width=2))
    prompt = prompt_of(21)
    await fleet.submit("a", prompt, sampling, fleet.prefill)
    ended = await fleet.router.ended("a")
    assert ended.timing.prefill_worker == "prefill-0"
    assert told(fleet.router, "a") == scores_alone(prompt, sampling)
    assert received(fleet.router, "a") == expected(prompt, sampling)


async def test_blocks_that_never_verify_are_computed_here_and_no_score_is_told_twice(
    fleet: Any,
) -> None:
    fleet.faults.corrupts = True
    prompt, sampling = prompt_of(37), scored()
    await fleet.submit("a", prompt, sampling, fleet.prefill)
    assert (await fleet.router.ended("a")).error.code == ""
    assert told(fleet.router, "a") == scores_alone(prompt, sampling)
    assert received(fleet.router, "a") == expected(prompt, sampling)
    await fleet.all_empty()


async def test_a_source_that_stands_still_is_followed_by_the_next() -> None:
    prompt, sampling = prompt_of(100), scored()
    async with running_fleet(decode_worker(1.0)) as slow:
        slow.prefill[0].link.freeze()
        await slow.submit("a", prompt, sampling, slow.prefill, timeout_ms=8_000)
        ended = await slow.router.ended("a")
        assert ended.error.code == ""
        assert ended.timing.prefill_worker == "prefill-1"
        assert told(slow.router, "a") == scores_alone(prompt, sampling)
        slow.prefill[0].link.thaw()
        await slow.all_empty()


async def test_a_request_that_is_cancelled_leaves_nothing(fleet: Any) -> None:
    await fleet.submit("a", prompt_of(100), scored(40), fleet.prefill)
    await fleet.router.cancel("a")
    assert (await fleet.router.ended("a")).error.code == "cancelled"
    await fleet.all_empty()
    assert counted(fleet.decode, "kv_transfer_failures") == {}


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_prefill_workers_do_each_score_is_told_once_and_is_right(seed: int) -> None:
    dialer = CruelDialer(seed)
    chance = random.Random(seed)
    names = [f"r{number}" for number in range(16)]
    prompts = {name: prompt_of(chance.randint(1, 60), seed=i) for i, name in enumerate(names)}
    sampling = scored()
    async with running_fleet(DecodeWorker(0.3, World(dialer=dialer))) as fleet:
        reading = asyncio.create_task(read_until_ended(fleet.router, set(names)))
        for name in names:
            targets = chance.sample(fleet.prefill, k=2)
            await fleet.submit(name, prompts[name], sampling, targets, timeout_ms=120_000)
        assert await reading == dict.fromkeys(names, 1)
        for name in names:
            assert told(fleet.router, name) == scores_alone(prompts[name], sampling)
            assert received(fleet.router, name) == expected(prompts[name], sampling)
        await fleet.all_empty()
    assert set(dialer.drawn) >= {Fault.HANGS, Fault.LIES, Fault.DIES}
