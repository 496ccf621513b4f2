"""Prompts whose own tokens are scored: by prefill workers as by decode workers, bit for bit, and as
transformers does; over both doors."""

import asyncio
import random
import time

import httpx
import pytest

from cluster.rpc import open_channel
from protos import generation_pb2, inference_pb2, inference_pb2_grpc
from tests.fleet.put_directly import frames_alone, greedy_submit, members_of
from tests.fleet.support import fleet_channel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LIMIT_S = 300.0
TOP = 2
PATIENCE_S, AGAIN_S = 100.0, 2.0
CHOSEN = (0, 3, 11)
"""37, 64 and 200 tokens: less than a step may score, as many, and more."""
CLOSE = {"rel": 2e-4, "abs": 2e-4}


async def scored_by(fleet, prompt, *, by_prefill):
    """Scores and timing of the decode worker's answer; the prompt is computed anew, by the first
    prefill worker or there. One that was given up as too slow is asked again once it may have
    rested: machines are busy."""
    deadline = time.monotonic() + PATIENCE_S
    scores, timing = await scored_once(fleet, prompt, by_prefill=by_prefill)
    while by_prefill and not timing.prefill_worker and time.monotonic() < deadline:
        await asyncio.sleep(AGAIN_S)
        scores, timing = await scored_once(fleet, prompt, by_prefill=by_prefill)
    return scores, timing


async def scored_once(fleet, prompt, *, by_prefill):
    async with fleet_channel(fleet.grpc_address) as router:
        members = await members_of(router)
    decode = next(member for member in members if member.role == "decode")
    prefill = [member for member in members if member.role == "prefill"][:by_prefill]
    submit = greedy_submit(prompt, 4, prefill, random.Random(str(prompt)), timeout_s=LIMIT_S)
    submit.cache_root = random.randbytes(16)
    submit.sampling.prompt_logprobs = TOP
    scores = []
    async with fleet_channel(decode.address) as channel:
        async for frame in frames_alone(channel, decode, submit):
            scores += [token for item in frame.prompts for token in item.tokens]
            if frame.ended:
                assert frame.ended[0].error.code == ""
                return scores, frame.ended[0].timing
    raise AssertionError("the decode worker ended a session")


def assert_right(scores, prompt, reference):
    assert [token.token_id for token in scores] == prompt[1:]
    assert [token.logprob for token in scores] == pytest.approx(
        reference.logprobs(prompt, 1), **CLOSE
    )


@pytest.mark.parametrize("index", CHOSEN)
async def test_a_prefill_worker_scores_a_prompt_as_the_decode_worker_does(
    pair_fleet, reference, index
):
    prompt = reference.prompts[index]
    here, timing = await scored_by(pair_fleet, prompt, by_prefill=False)
    assert timing.prefill_worker == ""
    there, timing = await scored_by(pair_fleet, prompt, by_prefill=True)
    assert timing.prefill_worker
    assert there == here
    assert all(len(token.top) == TOP for token in there)
    assert_right(there, prompt, reference)


async def test_three_ranks_score_for_two(unequal_fleet, reference):
    prompt = reference.prompts[11]
    scores, timing = await scored_by(unequal_fleet, prompt, by_prefill=True)
    assert timing.prefill_worker
    assert_right(scores, prompt, reference)


async def over_grpc(fleet, prompt):
    sampling = generation_pb2.SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=TOP)
    request = inference_pb2.GenerateRequest(
        tokens=inference_pb2.TokenIds(ids=prompt), sampling=sampling
    )
    async with open_channel(fleet.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        replies = [reply async for reply in stub.Generate(request, timeout=LIMIT_S)]
    assert replies[0].HasField("prompt")
    return replies[0].prompt.tokens


async def test_both_doors_tell_the_same_scores(pair_fleet, reference):
    prompt = reference.prompts[3]
    scores = await over_grpc(pair_fleet, prompt)
    assert_right(scores, prompt, reference)
    common = {"model": "smollm2", "max_tokens": 1, "temperature": 0, "prompt_logprobs": TOP}
    messages = [{"role": "user", "content": "Where does the river run?"}]
    async with httpx.AsyncClient(base_url=pair_fleet.url, timeout=LIMIT_S) as client:
        reply = await client.post("/v1/completions", json={"prompt": prompt, **common})
        chat = await client.post("/v1/chat/completions", json={"messages": messages, **common})
    assert reply.status_code == chat.status_code == 200, reply.text + chat.text
    first, *told = reply.json()["choices"][0]["prompt_logprobs"]
    assert first is None
    for token, candidates in zip(scores, told, strict=True):
        assert candidates[str(token.token_id)]["logprob"] == pytest.approx(token.logprob, rel=1e-6)
        assert candidates[str(token.token_id)]["rank"] == token.rank
    assert len(chat.json()["prompt_logprobs"]) == chat.json()["usage"]["prompt_tokens"]
