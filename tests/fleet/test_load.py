"""Many requests at once, and many clients that leave: right answers, and nothing left behind."""

import asyncio
import random

import httpx
import pytest

from tests.fleet.support import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
NUM_MIXED = 64
NUM_LEAVING = 200


def body(prompt, **options):
    return {"model": "smollm2", "prompt": prompt, "temperature": 0, "ignore_eos": True, **options}


def is_quiet(fleet):
    """True when every worker's blocks are free or cached, no lease lives, and no check fails."""
    report = fleet.status()
    if report["num_in_flight"] or report["num_queued"]:
        return False
    for member in report["members"]:
        assert member["violations"] == []
        load = member["load"]
        if load["free_blocks"] + load["cached_blocks"] != load["total_blocks"]:
            return False
        if load["num_leases"] or load["num_running"] or load["num_waiting"]:
            return False
    return True


async def test_64_mixed_requests_all_finish_right_and_leave_nothing(pair_fleet, reference):
    rng = random.Random(3)
    picks = [rng.randrange(12) for _ in range(NUM_MIXED)]
    lengths = [rng.choice([1, 4, 9, 16]) for _ in range(NUM_MIXED)]
    async with httpx.AsyncClient(base_url=pair_fleet.url, timeout=240) as client:

        async def ask(index):
            options = {"max_tokens": lengths[index], "logprobs": 0, "cache_salt": "load"}
            prompt = reference.prompts[picks[index]]
            reply = await client.post("/v1/completions", json=body(prompt, **options))
            assert reply.status_code == 200, reply.text
            return reply.json()["choices"][0]["text"]

        texts = await asyncio.gather(*(ask(i) for i in range(NUM_MIXED)))
    for index, text in enumerate(texts):
        answer = reference.answers[picks[index]][: lengths[index]]
        assert text == reference.tokenizer.decode(answer, skip_special_tokens=True)
    wait_for(lambda: is_quiet(pair_fleet), timeout_s=60, what="quiet after 64 requests")


async def test_after_200_random_disconnects_every_block_is_free_or_cached(pair_fleet, reference):
    rng = random.Random(4)
    gate = asyncio.Semaphore(16)
    async with httpx.AsyncClient(base_url=pair_fleet.url, timeout=60) as client:

        async def leave(index):
            prompt = [rng.randrange(1000, 40000), *reference.prompts[rng.randrange(14)]]
            request = body(prompt, max_tokens=200, stream=bool(index % 4), n=1 + index % 2)
            async with gate:
                try:
                    async with asyncio.timeout(rng.uniform(0.0, 1.0)):
                        async with client.stream("POST", "/v1/completions", json=request) as reply:
                            async for _ in reply.aiter_lines():
                                pass
                except TimeoutError:
                    return 1
            return 0

        left = sum(await asyncio.gather(*(leave(i) for i in range(NUM_LEAVING))))
    assert left > NUM_LEAVING * 0.9
    wait_for(lambda: is_quiet(pair_fleet), timeout_s=60, what="quiet after 200 disconnects")
    async with httpx.AsyncClient(base_url=pair_fleet.url, timeout=60) as client:
        reply = await client.post("/v1/completions", json=body(reference.prompts[0], max_tokens=16))
    expected = reference.tokenizer.decode(reference.answers[0], skip_special_tokens=True)
    assert reply.json()["choices"][0]["text"] == expected
