"""Beam searches through a fleet have transformers' answers and scores, over HTTP and gRPC."""

import math

import httpx
import pytest

from cluster.rpc import open_channel
from protos import generation_pb2, inference_pb2, inference_pb2_grpc
from tests.fleet.reference import BEAM_WIDTHS, NUM_BEAM_PROMPTS, NUM_BEAM_TOKENS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LIMIT_S = 300.0
CLOSE = 2e-4
"""Of scores: float32 sums in another order."""


async def over_http(fleet, prompt, width):
    """Texts are not looked at: the tokenizer of the reference is not ours."""
    body = {
        "model": "smollm2",
        "prompt": prompt,
        "max_tokens": NUM_BEAM_TOKENS,
        "use_beam_search": True,
        "n": width,
        "ignore_eos": True,
        "logprobs": 0,
    }
    async with httpx.AsyncClient(timeout=LIMIT_S) as client:
        response = await client.post(f"{fleet.url}/v1/completions", json=body)
    assert response.status_code == 200, response.text
    choices = response.json()["choices"]
    return [sum(choice["logprobs"]["token_logprobs"]) / NUM_BEAM_TOKENS for choice in choices]


async def over_grpc(fleet, prompt, width, num_tokens=NUM_BEAM_TOKENS):
    sampling = generation_pb2.SamplingParams(
        max_tokens=num_tokens,
        n=width,
        ignore_eos=True,
        logprobs=0,
        beams=generation_pb2.BeamSearch(width=width),
    )
    request = inference_pb2.GenerateRequest(
        tokens=inference_pb2.TokenIds(ids=prompt), sampling=sampling
    )
    tokens = [[] for _ in range(width)]
    async with open_channel(fleet.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        async for reply in stub.Generate(request, timeout=LIMIT_S):
            if reply.HasField("chunk"):
                tokens[reply.chunk.choice] += reply.chunk.tokens
    return [
        ([token.token_id for token in answer], sum(t.logprob for t in answer) / len(answer))
        for answer in tokens
    ]


def assert_close(found, expected):
    for score, wanted in zip(found, expected, strict=True):
        assert math.isclose(score, wanted, rel_tol=CLOSE, abs_tol=CLOSE)


@pytest.mark.parametrize(("width", "number"), [(2, 0), (4, 5)])
def test_the_kept_beams_are_the_reference_s(reference, width, number):
    assert [len(reference.kept_beams[each]) for each in BEAM_WIDTHS] == [NUM_BEAM_PROMPTS] * 2
    kept = reference.kept_beams[width][number]
    found = reference.beams(reference.prompts[number], width)
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in kept]
    assert_close([score for _, score in found], [score for _, score in kept])


@pytest.mark.parametrize("width", BEAM_WIDTHS)
async def test_ten_prompts_have_the_reference_s_beams(pair_fleet, reference, width):
    for number, expected in enumerate(reference.kept_beams[width]):
        prompt = reference.prompts[number]
        found = await over_grpc(pair_fleet, prompt, width)
        assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
        assert_close([score for _, score in found], [score for _, score in expected])
        if number < 2:
            assert_close(
                await over_http(pair_fleet, prompt, width), [score for _, score in expected]
            )
