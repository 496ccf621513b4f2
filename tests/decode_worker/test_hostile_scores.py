"""A prefill worker that scores a prompt wrongly: its source is given up, and what was right of it
is not told again."""

import asyncio
import math

import pytest

from cluster.generation import PromptToken
from cluster.wire import prompt_token_from_wire, prompt_token_to_wire
from engine.contract.commands import PrefillLocally, Seed
from protos import handoff_pb2
from tests.decode_worker.decode_bench import PAIRING
from tests.decode_worker.scripted_prefill import running_prefill

NUM_TOKENS = 8
"""The prompt is 0, 1, ... 7."""


@pytest.fixture
async def liar():
    async with running_prefill("prefill-liar", PAIRING) as prefill:
        yield prefill


@pytest.fixture
async def honest():
    async with running_prefill("prefill-honest", PAIRING) as prefill:
        yield prefill


def score(token_id, **changes):
    given = {"logprob": -1.0 - token_id, "rank": 2, "top": ((3, -0.5),)} | changes
    return PromptToken(token_id=token_id, **given)


def scores(first_index, *tokens):
    told = handoff_pb2.ScoredTokens(
        first_index=first_index, tokens=map(prompt_token_to_wire, tokens)
    )
    return handoff_pb2.PrefillEvent(scored=told)


def run(first, end):
    """What an honest one says of these tokens."""
    return scores(first, *map(score, range(first, end)))


LIES = {
    "the first token scored": [scores(0, score(0))],
    "a gap": [run(1, 3), run(4, 5)],
    "one twice": [run(1, 3), run(2, 4)],
    "another token": [scores(1, score(5))],
    "more tokens than the prompt has": [scores(1, *map(score, range(1, NUM_TOKENS + 1)))],
    "nothing": [scores(1)],
    "an alternative outside the vocabulary": [scores(1, score(1, top=((2**31, -1.0),)))],
    "more alternatives than were asked for": [scores(1, score(1, top=((1, -1.0), (2, -2.0))))],
    "a rank of nothing": [scores(1, score(1, rank=0))],
    "a rank beyond the vocabulary": [scores(1, score(1, rank=2**31))],
    "a logprob that is no number": [scores(1, score(1, logprob=math.nan))],
    "an alternative that is no number": [scores(1, score(1, top=((1, math.nan),)))],
}


def scores_told(router):
    prompts = [prompt for frame in router.frames for prompt in frame.prompts]
    indices = [p.first_index + at for p in prompts for at, _ in enumerate(p.tokens)]
    assert indices == list(range(1, 1 + len(indices)))
    return [prompt_token_from_wire(token) for prompt in prompts for token in prompt.tokens]


async def submitted(bench, *targets):
    router = bench.open_session()
    await router.submit("a", *targets, num_tokens=NUM_TOKENS, prompt_logprobs=1)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    return router, engine_id


@pytest.mark.parametrize("lie", LIES)
async def test_a_lie_gives_up_its_source_and_the_next_one_scores_the_rest(bench, liar, honest, lie):
    router, engine_id = await submitted(bench, liar.target, honest.target)
    for event in LIES[lie]:
        (await liar.stream()).say(event)
    stream = await honest.stream()
    stream.say(run(1, 5))
    stream.say(run(5, NUM_TOKENS))
    stream.say_first_token(7)
    await bench.link.wait_for(Seed)
    bench.end(engine_id)
    await router.ended("a")
    assert scores_told(router) == [score(token_id) for token_id in range(1, NUM_TOKENS)]


@pytest.mark.parametrize("num_scored", [0, 3, NUM_TOKENS - 2])
async def test_a_first_token_before_the_last_score_is_believed_by_nobody(bench, liar, num_scored):
    router, engine_id = await submitted(bench, liar.target)
    stream = await liar.stream()
    if num_scored:
        stream.say(run(1, 1 + num_scored))
    stream.say_first_token(7)
    here = await bench.link.wait_for(PrefillLocally)
    assert here.num_scored == num_scored
    assert not bench.link.told(Seed)
    bench.end(engine_id)
    await router.ended("a")
    assert scores_told(router) == [score(token_id) for token_id in range(1, 1 + num_scored)]


async def test_scores_behind_the_last_one_end_the_source(bench, liar):
    _, _ = await submitted(bench, liar.target)
    stream = await liar.stream()
    stream.say(run(1, NUM_TOKENS))
    stream.say(run(1, 2))
    async with asyncio.timeout(5):
        await stream.released.wait()
    assert (await bench.link.wait_for(PrefillLocally)).num_scored == NUM_TOKENS - 1
