"""Beam searches whose prompt a prefill worker computes: real engines, transfer and gRPC."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cluster.beam_search import BeamSearch
from cluster.sampling import SamplingParams
from engine.process.fake_runner import fake_logits
from tests.decode_worker.thread_fleet import (
    counted,
    prompt_of,
    read_until_ended,
    received,
    running_fleet,
)
from tests.engine.step.beam_reference import searched

VOCAB_SIZE = 512
ENDS = tuple(range(0, 512, 80))


@pytest.fixture
async def fleet() -> AsyncIterator[Any]:
    async with running_fleet() as running:
        yield running


def search(max_tokens: int = 6, **changes: Any) -> SamplingParams:
    beams = changes.pop("beams", BeamSearch(width=3))
    given = {"stop_token_ids": ENDS, "n": 2, "logprobs": 1} | changes
    return SamplingParams(max_tokens=max_tokens, beams=beams, **given)


def expected(prompt: list[int], params: SamplingParams) -> dict[int, list[int]]:
    def logits_of(tokens: Any) -> Any:
        return fake_logits(tokens, VOCAB_SIZE)

    found = searched(logits_of, prompt, params, params.stop_token_ids)
    return {choice: tokens for choice, (tokens, _) in enumerate(found)}


@pytest.mark.parametrize("num_prefill", [0, 1])
@pytest.mark.parametrize("max_tokens", [1, 6])
@pytest.mark.parametrize("num_tokens", [3, 16, 37])
async def test_the_answers_are_the_reference_s(
    fleet: Any, num_tokens: int, max_tokens: int, num_prefill: int
) -> None:
    prompt, sampling = prompt_of(num_tokens), search(max_tokens)
    await fleet.submit("a", prompt, sampling, fleet.prefill[:num_prefill])
    ended = await fleet.router.ended("a")
    assert ended.error.code == ""
    assert received(fleet.router, "a") == expected(prompt, sampling)
    assert ended.timing.prefill_worker == ("prefill-0" if num_prefill else "")
    said = [each.num_tokens for frame in fleet.router.frames for each in frame.searched]
    assert said and said == [3 * step for step in range(1, len(said) + 1)]  # as they are made
    await fleet.all_empty()
    if num_prefill:
        assert counted(fleet.decode, "handoffs") == {"first": 1}
        assert counted(fleet.decode, "kv_transfer_failures") == {}


async def test_all_tokens_come_in_one_frame_with_the_end_and_their_logprobs(fleet: Any) -> None:
    prompt, sampling = prompt_of(20), search(beams=BeamSearch(width=3, length_penalty=0.0))
    await fleet.submit("a", prompt, sampling, fleet.prefill)
    await fleet.router.ended("a")
    [frame] = [frame for frame in fleet.router.frames if frame.tokens]
    assert [ended.request_id for ended in frame.ended] == ["a"]
    scores = searched(
        lambda tokens: fake_logits(tokens, VOCAB_SIZE), prompt, sampling, sampling.stop_token_ids
    )
    for tokens, (_, score) in zip(frame.tokens, scores, strict=True):
        assert math.isclose(sum(t.logprob for t in tokens.tokens), score, rel_tol=1e-4)
        assert all(len(token.top) == 1 for token in tokens.tokens)
    assert any(computed.request_id == "a" for f in fleet.router.frames for computed in f.computed)


async def test_blocks_that_never_verify_are_computed_here(fleet: Any) -> None:
    fleet.faults.corrupts = True
    prompt, sampling = prompt_of(37), search()
    await fleet.submit("a", prompt, sampling, fleet.prefill)
    ended = await fleet.router.ended("a")
    assert ended.error.code == ""
    assert received(fleet.router, "a") == expected(prompt, sampling)
    await fleet.all_empty()


async def test_a_search_that_is_cancelled_leaves_nothing(fleet: Any) -> None:
    await fleet.submit("a", prompt_of(20), search(40, stop_token_ids=()), fleet.prefill)
    async with asyncio.timeout(20):
        while not any(computed for frame in fleet.router.frames for computed in frame.computed):
            await fleet.router.next_frame()
    await fleet.router.cancel("a")
    ended = await fleet.router.ended("a")
    assert ended.error.code == "cancelled"
    assert received(fleet.router, "a") == {}
    await fleet.all_empty()


async def test_searches_beside_other_requests(fleet: Any) -> None:
    plain = SamplingParams(max_tokens=8, temperature=0.0)
    names = [f"r{number}" for number in range(6)]
    for number, name in enumerate(names):
        sampling = search() if number % 2 else plain
        await fleet.submit(name, prompt_of(21, number), sampling, fleet.prefill[: number % 3])
    await read_until_ended(fleet.router, set(names))
    for number, name in enumerate(names):
        if number % 2:
            assert received(fleet.router, name) == expected(prompt_of(21, number), search())
    await fleet.all_empty()
