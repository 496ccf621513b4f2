"""Workers die: requests end right or with a typed error, and the fleet heals itself."""

import asyncio
import json
import os
import signal
import time

import httpx
import pytest

from protos import worker_pb2, worker_pb2_grpc
from router.fleet.fleet import NO_WORKER_GRACE_S
from tests.fleet.support import fleet_channel, wait_for
from tests.fleet.test_load import body as reference_request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
NUM_STREAMED = 300
"""Of an answer whose worker is killed at its fifth event; where the next one comes in time it is
computed to its end."""
GENEROUS_S = 30.0
"""For an error on a busy machine; the request itself has a minute."""
LONG = 17
"""Of the prompts: its 900 tokens take seconds, and those behind it no other way."""


@pytest.fixture
def fleet(pair_fleet):
    """What is killed here is started again by the fleet itself."""
    return pair_fleet


def member(fleet, role):
    return next((m for m in fleet.status()["members"] if m["role"] == role), None)


def body(prompt, **options):
    return reference_request(prompt, cache_salt="faults", **options)


def is_back(fleet, role, old_incarnation):
    now = member(fleet, role)
    return now and now["state"] == "ready" and now["incarnation"] != old_incarnation


async def prefill_has_begun(address):
    """Returns once that worker holds blocks of a running request."""
    async with asyncio.timeout(120), fleet_channel(address) as channel:
        worker = worker_pb2_grpc.WorkerAdminStub(channel)
        load = worker_pb2.EngineLoad()
        while not load.active_blocks + load.exported_blocks:
            load = (await worker.Status(worker_pb2.StatusRequest())).load


async def test_a_prefill_worker_killed_in_mid_prefill_costs_time_only(fleet, reference):
    victim = member(fleet, "prefill")
    async with httpx.AsyncClient(base_url=fleet.url, timeout=120) as client:
        asked = asyncio.create_task(
            client.post("/v1/completions", json=body(reference.prompts[LONG], max_tokens=16))
        )
        await prefill_has_begun(victim["address"])
        os.kill(victim["pid"], signal.SIGKILL)
        reply = await asked
    assert reply.status_code == 200, reply.text
    expected = reference.tokenizer.decode(reference.answers[LONG], skip_special_tokens=True)
    assert reply.json()["choices"][0]["text"] == expected
    wait_for(
        lambda: is_back(fleet, "prefill", victim["incarnation"]),
        timeout_s=60,
        what="a new prefill worker",
    )


async def test_a_decode_worker_killed_in_mid_stream_gives_a_typed_error_unless_the_next_one_comes(
    fleet, reference
):
    victim = member(fleet, "decode")
    request = body(reference.prompts[0], max_tokens=NUM_STREAMED, stream=True)
    killed_at, error, last = 0.0, None, ""
    async with (
        httpx.AsyncClient(base_url=fleet.url, timeout=60) as client,
        client.stream("POST", "/v1/completions", json=request) as reply,
    ):
        assert reply.status_code == 200
        lines = 0
        async for line in reply.aiter_lines():
            last = line or last
            lines += line.startswith("data: ")
            if lines == 5 and not killed_at:
                os.kill(victim["pid"], signal.SIGKILL)
                killed_at = time.monotonic()
            if line.startswith("data: {") and "error" in json.loads(line[6:]):
                error = json.loads(line[6:])["error"]
                took_s = time.monotonic() - killed_at
    if error is None:
        assert last == "data: [DONE]", "the next one came in time: it goes on to the end"
    else:
        assert error["code"] == "worker_lost"
        assert took_s < GENEROUS_S + NO_WORKER_GRACE_S
    wait_for(
        lambda: is_back(fleet, "decode", victim["incarnation"]),
        timeout_s=60,
        what="a new decode worker",
    )


async def test_traffic_recovers_after_both_deaths(fleet, reference):
    async with httpx.AsyncClient(base_url=fleet.url, timeout=120) as client:
        replies = await asyncio.gather(
            *(
                client.post("/v1/completions", json=body(prompt, max_tokens=16))
                for prompt in reference.prompts[:6]
            )
        )
    expected = [
        reference.tokenizer.decode(answer, skip_special_tokens=True)
        for answer in reference.answers[:6]
    ]
    assert [reply.json()["choices"][0]["text"] for reply in replies] == expected


def test_a_killed_engine_process_is_a_dead_worker_and_comes_back(fleet):
    victim = member(fleet, "decode")
    os.kill(victim["engine_pid"], signal.SIGKILL)
    wait_for(
        lambda: is_back(fleet, "decode", victim["incarnation"]),
        timeout_s=60,
        what="a new decode worker",
    )
