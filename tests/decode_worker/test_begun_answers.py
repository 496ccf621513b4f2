"""Answers that another decode worker has begun, over real engines, real transfer and real gRPC."""

import pytest

from cluster.sampling import SamplingParams
from tests.decode_worker.engine_thread import BLOCK_SIZE
from tests.decode_worker.thread_fleet import counted, expected, prompt_of, received, running_fleet

LENGTH = 40
BEGUN = (1, 2, 3, 10, 11, 12, 27, 38, 39)
"""Tokens: at the borders of blocks and between them, and with one left to come."""
SEEDED = SamplingParams(max_tokens=LENGTH, temperature=0.9, seed=11, frequency_penalty=0.5)
TWO = SamplingParams(max_tokens=LENGTH, temperature=0.9, seed=3, n=2)


@pytest.fixture
async def fleet():
    async with running_fleet() as running:
        yield running


@pytest.mark.parametrize("num_prefill", [0, 1], ids=["local", "handoff"])
async def test_from_whatever_token_on_the_rest_is_the_same(fleet, num_prefill):
    for begun in BEGUN:
        prompt = prompt_of(21, seed=begun)  # nobody has any of it
        [answer] = expected(prompt, SEEDED).values()
        name, sources = f"r{begun}", fleet.prefill[:num_prefill]
        await fleet.submit(name, prompt, SEEDED, sources, resume={0: answer[:begun]})
        ended = await fleet.router.ended(name)
        assert ended.error.code == ""
        assert received(fleet.router, name) == {0: answer[begun:]}
        assert ended.timing.prefill_worker == ("prefill-0" if num_prefill else "")
    await fleet.all_empty()
    assert counted(fleet.decode, "handoffs") == ({"first": len(BEGUN)} if num_prefill else {})


async def test_what_is_handed_over_has_the_answer_so_far(fleet):
    prompt = prompt_of(2 * BLOCK_SIZE)
    [answer] = expected(prompt, SEEDED).values()
    begun = answer[: LENGTH - 2]
    await fleet.submit("a", prompt, SEEDED, fleet.prefill[:1], resume={0: begun})
    ended = await fleet.router.ended("a")
    block_bytes = 2 * 2 * 2 * BLOCK_SIZE * 8 * 4
    assert ended.timing.kv_bytes == -(-(len(prompt) + len(begun)) // BLOCK_SIZE) * block_bytes
    await fleet.all_empty()


async def test_one_choice_of_several_that_goes_on_is_handed_over(fleet):
    prompt = prompt_of(21)
    answers = expected(prompt, TWO)
    await fleet.submit("a", prompt, TWO, fleet.prefill[:1], resume={1: answers[1][:7]})
    ended = await fleet.router.ended("a")
    assert received(fleet.router, "a") == {1: answers[1][7:]}
    assert ended.timing.prefill_worker == "prefill-0"
    await fleet.all_empty()


async def test_several_choices_go_on_here_whoever_is_proposed(fleet):
    prompt = prompt_of(21)
    answers = expected(prompt, TWO)
    resume = {0: answers[0][:30], 1: answers[1][:7]}
    await fleet.submit("a", prompt, TWO, fleet.prefill, resume=resume)
    ended = await fleet.router.ended("a")
    assert received(fleet.router, "a") == {0: answers[0][30:], 1: answers[1][7:]}
    assert ended.timing.prefill_worker == ""
    await fleet.all_empty()


@pytest.mark.parametrize("num_prefill", [0, 1], ids=["local", "handoff"])
async def test_what_the_prompt_took_is_told_with_the_first_tokens(fleet, num_prefill):
    await fleet.submit("a", prompt_of(37), TWO, fleet.prefill[:num_prefill])
    while not (frame := await fleet.router.next_frame()).tokens:
        assert not frame.computed
    [computed] = frame.computed
    ended = await fleet.router.ended("a")
    assert computed.request_id == "a"
    assert computed.cached_tokens == ended.usage.cached_tokens
    for name in ("prefill_worker", "decode_worker", "prefill_ms", "queue_ms", "kv_ms"):
        assert getattr(computed.timing, name) == getattr(ended.timing, name)
    assert computed.timing.prefill_ms > 0
    await fleet.all_empty()


async def test_a_begun_answer_of_no_length_that_fits_is_refused(fleet):
    await fleet.submit("a", prompt_of(21), TWO, (), resume={0: list(range(100_000))})
    ended = await fleet.router.ended("a")
    assert ended.error.code == "context_length_exceeded"
    assert "and 100000 of its answer" in ended.error.message
