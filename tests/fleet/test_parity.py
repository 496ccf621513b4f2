"""Greedy tokens equal the reference's, whatever way a request takes through the fleet."""

import asyncio
import random

import pytest

from cluster.rpc import open_channel
from protos import generation_pb2, inference_pb2, inference_pb2_grpc
from tests.fleet.put_directly import greedy_submit, members_of, submit_alone
from tests.fleet.reference import NUM_NEW_TOKENS, texts
from tests.fleet.support import fleet_channel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LIMIT_S = 300.0
"""Of one request; generous, since machines are busy."""

CHOSEN = (0, 3, 4, 10, 15)
"""Asked for alone: 37, 64, 65, 150 and 512 tokens; short, with a whole last block, with one token
in it, over many. At once they come with all others."""
NUM_UP_TO_640 = 17
"""The prompts of these lengths: the last is longer than a step may be. The four behind them cost
more than all of these, so one fleet alone is asked for them."""


def chosen(of_all):
    """Of the prompts, or of the answers."""
    return [of_all[index] for index in CHOSEN]


async def generate(channel, prompt, num_tokens=NUM_NEW_TOKENS, *, on_first=lambda: None):
    """Tokens of one greedy request and its Complete; `on_first` is called with the first token."""
    request = inference_pb2.GenerateRequest(
        tokens=inference_pb2.TokenIds(ids=prompt),
        sampling=generation_pb2.SamplingParams(
            temperature=0, max_tokens=num_tokens, ignore_eos=True
        ),
    )
    tokens, complete = [], None
    stub = inference_pb2_grpc.InferenceStub(channel)
    async for reply in stub.Generate(request, timeout=LIMIT_S):
        if reply.HasField("chunk"):
            if not tokens:
                on_first()
            tokens += [token.token_id for token in reply.chunk.tokens]
        elif reply.HasField("complete"):
            complete = reply.complete
    return tokens, complete


async def answer_all(fleet, prompts, *, at_once):
    """Answers of the fleet, `at_once` requests at a time, in the order of the prompts."""
    gate = asyncio.Semaphore(at_once)
    async with open_channel(fleet.grpc_address) as channel:

        async def one(prompt):
            async with gate:
                return await generate(channel, prompt)

        return await asyncio.gather(*(one(prompt) for prompt in prompts))


async def answer_all_directly(fleet, prompts, *, at_once):
    """Answers of the decode worker, which computes each prompt itself, and anew."""
    chance, gate = random.Random(at_once), asyncio.Semaphore(at_once)
    async with fleet_channel(fleet.grpc_address) as router:
        decode = next(m for m in await members_of(router) if m.role == "decode")
    async with fleet_channel(decode.address) as channel:

        async def one(prompt):
            submit = greedy_submit(prompt, NUM_NEW_TOKENS, [], chance, timeout_s=LIMIT_S)
            async with gate:
                return await submit_alone(channel, decode, submit)

        return await asyncio.gather(*(one(prompt) for prompt in prompts))


def test_the_prompts_are_those_that_transformers_makes_of_their_texts(reference):
    for prompt, text in zip(reference.prompts, texts(), strict=True):
        assert prompt == reference.tokenizer(text)["input_ids"][: len(prompt)]


def test_the_kept_answers_are_the_reference_s(reference):
    assert len(reference.answers) == len(reference.prompts) >= 20
    for index in (0, 5, 11, 15):
        prompt, answer = reference.prompts[index], reference.answers[index]
        assert reference.likeliest(prompt + answer, len(prompt)) == answer


async def test_alone_through_prefill_to_decode(pair_fleet, reference):
    """The fleet has seen none of these prompts: their KV has to travel."""
    results = await answer_all(pair_fleet, chosen(reference.prompts), at_once=1)
    assert [tokens for tokens, _ in results] == chosen(reference.answers)
    crossed = [complete for _, complete in results if complete.timing.kv_bytes]
    assert len(crossed) >= len(results) // 2
    assert all(c.timing.prefill_worker and "nixl" in c.timing.kv_transport for c in crossed)


async def test_sixteen_at_once_through_prefill_to_decode(pair_fleet, reference):
    results = await answer_all(pair_fleet, reference.prompts, at_once=16)
    assert [tokens for tokens, _ in results] == reference.answers
    assert any(complete.timing.kv_bytes for _, complete in results)


async def test_again_from_the_prefix_cache(pair_fleet, reference):
    await answer_all(pair_fleet, reference.prompts[-4:], at_once=1)
    results = await answer_all(pair_fleet, reference.prompts[-4:], at_once=4)
    assert [tokens for tokens, _ in results] == reference.answers[-4:]
    assert all(complete.usage.cached_tokens >= 16 for _, complete in results)


@pytest.mark.parametrize("at_once", [1, 16])
async def test_through_a_prefill_where_it_is_decoded(at_once, pair_fleet, reference):
    """Put to the decode worker without a prefill worker to ask. A fleet that has none:
    test_rank_groups.py."""
    asked = CHOSEN if at_once == 1 else range(NUM_UP_TO_640)
    results = await answer_all_directly(
        pair_fleet, [reference.prompts[index] for index in asked], at_once=at_once
    )
    assert [tokens for tokens, _ in results] == [reference.answers[index] for index in asked]
    assert all(ended.timing.kv_bytes == ended.usage.cached_tokens == 0 for _, ended in results)


async def test_from_three_ranks_to_two_with_blocks_of_another_size(unequal_fleet, reference):
    """Some prompts may be computed where they are decoded: that is the router's choice."""
    prompts, answers = reference.prompts[:NUM_UP_TO_640:2], reference.answers[:NUM_UP_TO_640:2]
    for at_once in (1, 8):  # the second time over the caches of both
        results = await answer_all(unequal_fleet, prompts, at_once=at_once)
        assert [tokens for tokens, _ in results] == answers
        if at_once == 1:
            assert any(complete.timing.kv_bytes for _, complete in results)


async def test_sixteen_at_once_with_two_prefill_and_two_decode_workers(double_fleet, reference):
    prompts, answers = reference.prompts[:16], reference.answers[:16]
    results = await answer_all(double_fleet, prompts, at_once=16)
    assert [tokens for tokens, _ in results] == answers
    assert len({complete.timing.decode_worker for _, complete in results}) == 2


async def test_bf16_takes_the_reference_s_token_wherever_its_margin_is_clear(
    served_fleet, reference
):
    """bf16 keeps 8 bits of mantissa: logits near 20 are off by up to about 0.3 after 30 layers.
    Where the reference's best leads by more than 1.0, the same token must be chosen."""
    prompts = reference.prompts[:12]
    results = await answer_all(served_fleet, prompts, at_once=4)
    num_clear = 0
    for prompt, (tokens, _) in zip(prompts, results, strict=True):
        logits = reference.logits(prompt + tokens)[len(prompt) - 1 : -1]
        best = logits.topk(2).values
        for row, token in enumerate(tokens):
            if best[row, 0] - best[row, 1] > 1.0:
                num_clear += 1
                assert int(logits[row].argmax()) == token
    assert num_clear >= 40
