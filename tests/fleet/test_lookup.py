"""Prompt lookup behind handoffs: a decode worker that looks up says what one that does not says."""

import asyncio
import random
from dataclasses import dataclass

import pytest

from cluster.sampling import SamplingParams
from cluster.wire import sampling_to_wire
from tests.fleet.drafted import tried_and_kept
from tests.fleet.joined_worker import joined_worker
from tests.fleet.one_fleet import ENGINE, PATIENT
from tests.fleet.put_directly import greedy_submit, members_of, submit_alone
from tests.fleet.support import fleet_channel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NUM_TOKENS = 32
LIMIT_S = 300.0
SAMPLINGS = [
    SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, **wishes)
    for wishes in (
        {"temperature": 0.0},
        {"temperature": 0.7, "seed": 11},
        {"temperature": 0.7, "seed": 12, "top_p": 0.9, "frequency_penalty": 0.1},
    )
]


@dataclass(frozen=True)
class Answer:
    tokens: list[int]
    num_drafted: int


def copying(reference):
    """Prompts that say the same three times, and have begun to say it again."""
    for index in range(3):
        tokens = reference.prompts[index]
        yield 3 * tokens + tokens[: 8 + index]


async def answers(fleet, decode_id, reference):
    """Of every prompt with every sampling, at once; each prompt was computed by the prefill
    worker."""
    async with fleet_channel(fleet.grpc_address) as router:
        members = {member.worker_id: member for member in await members_of(router)}
    decode, prefill, chance = members[decode_id], members["prefill-0"], random.Random(4)

    async def one(channel, prompt, sampling):
        submit = greedy_submit(prompt, NUM_TOKENS, [prefill], chance, timeout_s=LIMIT_S)
        submit.sampling.CopyFrom(sampling_to_wire(sampling))
        tokens, ended = await submit_alone(channel, decode, submit)
        assert ended.error.code == "" and len(tokens) == NUM_TOKENS
        assert ended.timing.prefill_worker == "prefill-0" and ended.timing.kv_bytes
        return Answer(tokens, ended.timing.draft_tokens)

    asked = [(prompt, sampling) for prompt in copying(reference) for sampling in SAMPLINGS]
    async with fleet_channel(decode.address) as channel:
        alone = [await one(channel, *each) for each in asked[: len(SAMPLINGS)]]
        return alone + await asyncio.gather(*(one(channel, *each) for each in asked))


async def test_a_decode_worker_that_looks_up_says_what_one_that_does_not_says(
    served_fleet, reference, tmp_path
):
    """Two more beside the fleet's own, behind its prefill worker."""
    given = ("--model", "smollm2", *ENGINE, *PATIENT)
    found = {}
    for speculation in ("off", "ngram"):
        name, log = f"decode-{speculation}", tmp_path / f"{speculation}.log"
        options = (*given, "--speculation", speculation)
        with joined_worker(served_fleet, "decode", name, *options, log=log):
            found[name] = await answers(served_fleet, name, reference)
            num_tokens = sum(each.num_drafted for each in found[name])
            tried, kept = tried_and_kept(log, num_tokens=num_tokens)
        if speculation == "off":
            assert not tried
        else:
            assert tried["ngram"] >= kept["ngram"] > 0 and set(tried) == {"ngram"}
    assert [each.tokens for each in found["decode-ngram"]] == [
        each.tokens for each in found["decode-off"]
    ]
