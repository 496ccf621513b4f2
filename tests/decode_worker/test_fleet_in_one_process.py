"""Both roles over real engines (without a model), the real transfer code and real gRPC."""

import asyncio
import random

import pytest

from cluster.sampling import SamplingParams
from tests.decode_worker.decode_bench import RouterEnd
from tests.decode_worker.engine_thread import BLOCK_SIZE
from tests.decode_worker.thread_fleet import (
    counted,
    expected,
    prompt_of,
    read_until_ended,
    received,
    running_fleet,
)


@pytest.fixture
async def fleet():
    async with running_fleet() as running:
        yield running


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(max_tokens=6, temperature=0.0),
        SamplingParams(max_tokens=5, temperature=0.9, seed=11, n=3, logprobs=2),
        SamplingParams(max_tokens=1, temperature=0.0),
    ],
    ids=["greedy", "three-choices", "one-token"],
)
@pytest.mark.parametrize("num_tokens", [3, 16, 37])
async def test_tokens_are_those_of_one_engine_alone(fleet, sampling, num_tokens):
    prompt = prompt_of(num_tokens)
    await fleet.submit("a", prompt, sampling, fleet.prefill)
    ended = await fleet.router.ended("a")
    assert ended.error.code == ""
    assert received(fleet.router, "a") == expected(prompt, sampling)
    assert ended.timing.prefill_worker == "prefill-0"
    await fleet.all_empty()


@pytest.mark.parametrize("ends_by", ["max_tokens", "stop"])
async def test_a_request_that_ends_with_its_first_token_fails_nowhere(fleet, ends_by):
    prompt = prompt_of(61)  # four chunks
    one = SamplingParams(max_tokens=1, temperature=0.0)
    answer = expected(prompt, one)
    stop = SamplingParams(max_tokens=9, temperature=0.0, stop_token_ids=tuple(answer[0]))
    await fleet.submit("a", prompt, one if ends_by == "max_tokens" else stop, fleet.prefill[:1])
    ended = await fleet.router.ended("a")
    assert received(fleet.router, "a") == answer
    assert ended.usage.completion_tokens == 1
    assert ended.timing.prefill_worker == "prefill-0"
    assert ended.timing.prefill_ms > 0
    if ends_by == "max_tokens":
        assert ended.timing.kv_bytes == 0
    await fleet.all_empty()
    async with asyncio.timeout(5):
        while counted(fleet.prefill[0], "requests") != {"ok": 1}:
            await fleet.prefill[0].is_empty()
    assert counted(fleet.prefill[0], "handoffs") == {"done": 1}
    assert counted(fleet.decode, "kv_transfer_failures") == {}
    assert counted(fleet.decode, "handoffs") == {"first": 1}


async def tokens_of_choice(router: RouterEnd, request_id: str, choice: int, count: int) -> None:
    while len(received(router, request_id).get(choice, [])) < count:
        await router.next_frame()


@pytest.mark.parametrize("num_prefill", [0, 1], ids=["local", "handoff"])
async def test_finished_choices_end_with_usage_and_timing_and_leave_the_others_alone(
    fleet, num_prefill
):
    prompt = prompt_of(37)
    sampling = SamplingParams(max_tokens=60, temperature=0.9, seed=3, n=2)
    await fleet.submit("a", prompt, sampling, fleet.prefill[:num_prefill])
    await tokens_of_choice(fleet.router, "a", 1, 1)
    await fleet.router.finish("a", 1)
    await tokens_of_choice(fleet.router, "a", 0, 3)
    await fleet.router.finish("a", 0)
    ended = await fleet.router.ended("a")
    assert not ended.HasField("error")
    assert ended.usage.prompt_tokens == 37
    assert ended.usage.completion_tokens == sum(map(len, received(fleet.router, "a").values()))
    assert ended.timing.prefill_worker == ("prefill-0" if num_prefill else "")
    assert ended.timing.prefill_ms > 0
    answers = expected(prompt, sampling)
    for choice, given in received(fleet.router, "a").items():
        assert given == answers[choice][: len(given)]
    await fleet.all_empty()
    assert counted(fleet.decode, "requests") == {"ok": 1}


async def test_a_storm_of_finishes_ends_every_request_once_and_leaves_nothing_behind(fleet):
    chance = random.Random(1)
    sampling = SamplingParams(max_tokens=30, temperature=0.9, seed=3, n=2)
    names = [f"r{number}" for number in range(12)]
    for number, name in enumerate(names):
        await fleet.submit(name, prompt_of(25, number % 3), sampling, fleet.prefill[: number % 3])
    while {e.request_id for f in fleet.router.frames for e in f.ended} != set(names):
        frame = await fleet.router.next_frame()
        for tokens in frame.tokens:
            if chance.random() < 0.3:
                await fleet.router.finish(tokens.request_id, tokens.choice)
    ended = [e for frame in fleet.router.frames for e in frame.ended]
    assert sorted(e.request_id for e in ended) == sorted(names)
    assert {e.error.code for e in ended} == {""}
    await fleet.all_empty()


async def test_the_transfer_is_measured(fleet):
    sampling = SamplingParams(max_tokens=6, temperature=0.0)
    await fleet.submit("a", prompt_of(37), sampling, fleet.prefill)
    timing = (await fleet.router.ended("a")).timing
    block_bytes = 2 * 2 * 2 * BLOCK_SIZE * 8 * 4
    assert timing.kv_bytes == 10 * block_bytes
    assert timing.kv_transport == "loopback"
    assert timing.kv_transfer_ms > 0
    assert timing.prefill_ms > 0


async def test_a_second_request_with_the_same_prompt_reads_only_what_is_not_cached(fleet):
    sampling = SamplingParams(max_tokens=3, temperature=0.0)
    prompt = prompt_of(37)
    for name in "ab":
        await fleet.submit(name, prompt, sampling, fleet.prefill)
        ended = await fleet.router.ended(name)
    block_bytes = 2 * 2 * 2 * BLOCK_SIZE * 8 * 4
    assert ended.timing.kv_bytes == block_bytes
    assert ended.usage.cached_tokens == 36
    assert received(fleet.router, "b") == expected(prompt, sampling)


async def test_blocks_that_never_verify_are_computed_here_and_the_first_token_stays(fleet):
    fleet.faults.corrupts = True
    sampling = SamplingParams(max_tokens=6, temperature=0.9, seed=3)
    prompt = prompt_of(37)
    await fleet.submit("a", prompt, sampling, fleet.prefill)
    ended = await fleet.router.ended("a")
    assert ended.error.code == ""
    assert received(fleet.router, "a") == expected(prompt, sampling)
    await fleet.all_empty()


async def test_when_a_prefill_worker_stops_the_other_one_takes_over(fleet):
    sampling = SamplingParams(max_tokens=6, temperature=0.0)
    prompt = prompt_of(37)
    await fleet.prefill[0].server.stop(0)
    await fleet.submit("a", prompt, sampling, fleet.prefill)
    ended = await fleet.router.ended("a")
    assert ended.timing.prefill_worker == "prefill-1"
    assert received(fleet.router, "a") == expected(prompt, sampling)


async def test_a_deadline_in_the_middle_frees_everything_on_both_sides(fleet):
    sampling = SamplingParams(max_tokens=100, temperature=0.0)
    await fleet.submit("a", prompt_of(60), sampling, fleet.prefill, timeout_ms=8)
    assert (await fleet.router.ended("a")).error.code == "deadline_exceeded"
    await fleet.all_empty()


async def test_a_storm_of_cancellations_leaves_nothing_behind(fleet):
    chance = random.Random(5)
    sampling = SamplingParams(max_tokens=8, temperature=0.0)
    names = [f"r{i}" for i in range(40)]
    prompts = {name: prompt_of(chance.randint(1, 60), seed=i) for i, name in enumerate(names)}
    reading = asyncio.create_task(read_until_ended(fleet.router, set(names)))
    cancelled = set()
    for name in names:
        await fleet.submit(name, prompts[name], sampling, fleet.prefill)
        if chance.random() < 0.6:
            victim = chance.choice(names[: names.index(name) + 1])
            cancelled.add(victim)
            await fleet.router.cancel(victim)
    counts = await reading
    assert counts == dict.fromkeys(names, 1)
    for name in names:
        if name not in cancelled:
            assert received(fleet.router, name) == expected(prompts[name], sampling)
    await fleet.all_empty()


async def test_a_session_that_breaks_leaves_nothing_behind(fleet):
    sampling = SamplingParams(max_tokens=60, temperature=0.0)
    for i in range(6):
        await fleet.submit(f"r{i}", prompt_of(40, seed=i), sampling, fleet.prefill)
    await fleet.router.next_frame()
    fleet.router.call.cancel()
    await fleet.all_empty()
