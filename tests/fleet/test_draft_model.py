"""A fleet whose decode worker has a draft model gives the tokens of one without, over handoffs."""

import asyncio
from dataclasses import dataclass

import pytest

from benchmarks.draft_models import made_of_smollm2
from cluster.rpc import open_channel
from protos import generation_pb2, inference_pb2, inference_pb2_grpc
from tests.fleet.drafted import tried_and_kept
from tests.fleet.one_fleet import ENGINE
from tests.fleet.support import running_fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NUM_TOKENS = 32
LIMIT_S = 300.0
"""Of one request; generous, since machines are busy."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return made_of_smollm2(tmp_path_factory.mktemp("pair"), num_layers=3, damping=0.15)


def requests():
    """Greedy and seeded ones, over several blocks."""
    for number in range(4):
        yield inference_pb2.GenerateRequest(
            tokens=inference_pb2.TokenIds(ids=[(7 * number + 31 * i) % 9000 for i in range(70)]),
            sampling=generation_pb2.SamplingParams(
                temperature=0.8 * (number % 2), seed=number, max_tokens=NUM_TOKENS, ignore_eos=True
            ),
        )


@dataclass(frozen=True)
class Answered:
    tokens: list[int]
    num_guessed: int
    """Tokens that were drafted for it."""


def num_guessed(found):
    """Of all answers."""
    return sum(each.num_guessed for each in found)


async def answers(fleet):
    """Of each request alone, and then of all at once."""
    async with open_channel(fleet.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)

        async def one(request):
            tokens, timing = [], None
            async for reply in stub.Generate(request, timeout=LIMIT_S):
                if reply.HasField("chunk"):
                    tokens += [token.token_id for token in reply.chunk.tokens]
                elif reply.HasField("complete"):
                    timing = reply.complete.timing
            return Answered(tokens, timing.draft_tokens)

        alone = [await one(request) for request in requests()]
        at_once = await asyncio.gather(*(one(request) for request in requests()))
    assert [each.tokens for each in at_once] == [each.tokens for each in alone]
    return alone + at_once


async def test_tokens_over_handoffs_are_those_without_and_the_decode_worker_reads_for_itself(
    pair, tmp_path
):
    given = ("--model", str(pair.target), *ENGINE)
    with running_fleet(tmp_path / "off", *given, "--speculation", "off", num_workers=2) as fleet:
        expected = await answers(fleet)
        assert num_guessed(expected) == 0
    drafting = (*given, "--speculation", str(pair.draft))
    with running_fleet(tmp_path / "drafts", *drafting, num_workers=2) as fleet:
        found = await answers(fleet)
        assert [each.tokens for each in found] == [each.tokens for each in expected]
        decode_log = tmp_path / "drafts" / "decode-0.log"
        tried, _ = tried_and_kept(decode_log, num_tokens=num_guessed(found))
        assert tried["model"] > 0, tried
        log = fleet.log_path.read_text()
        assert "speculation draft (full, bfloat16)" in log
        assert log.count("load draft model") == 1  # the prefill worker has none
