"""An engine process alone is stopped and its server answers on: whoever waited goes elsewhere."""

import asyncio
import os
import random
import signal
import time

import pytest

from protos import membership_pb2
from tests.fleet.put_directly import greedy_submit, members_of, submit_alone
from tests.fleet.support import fleet_channel, wait_for
from tests.fleet.test_load import is_quiet
from tests.fleet.test_storm import members

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
NUM_REQUESTS = 4


@pytest.fixture
def fleet(double_fleet):
    """Requests are put to one of its decode workers, with both prefill workers to ask."""
    return double_fleet


async def asked(decode: membership_pb2.Member, prefill: list, seed: int):
    """One request with a fresh prompt; its tokens, its end, and the seconds that it took."""
    chance = random.Random(seed)
    prompt = chance.choices(range(1000, 40_000), k=300)
    submit = greedy_submit(prompt, 4, prefill, chance, timeout_s=200.0)
    began_s = time.monotonic()
    async with fleet_channel(decode.address) as channel:
        tokens, ended = await submit_alone(channel, decode, submit)
    return tokens, ended, time.monotonic() - began_s


async def test_requests_that_wait_on_a_stopped_prefill_engine_are_answered_by_another_one(fleet):
    async with fleet_channel(fleet.grpc_address) as router:
        view = await members_of(router)
    decode = next(m for m in view if m.role == "decode")
    prefill = [m for m in view if m.role == "prefill"]
    await asked(decode, prefill, seed=0)
    victim = next(
        m for m in members(fleet, "prefill", check=True) if m["worker_id"] == prefill[0].worker_id
    )
    os.kill(victim["engine_pid"], signal.SIGSTOP)
    answers = await asyncio.gather(
        *(asked(decode, prefill, seed) for seed in range(1, NUM_REQUESTS + 1))
    )
    for tokens, ended, took_s in answers:
        assert not ended.HasField("error"), ended.error
        assert len(tokens) == 4
        assert ended.timing.prefill_worker == prefill[1].worker_id
        assert took_s < 100, "it waited for its deadline"

    def healed():
        back = is_back_by_id(fleet, victim)
        return back and is_quiet(fleet)

    await asyncio.to_thread(wait_for, healed, timeout_s=120, what="the stopped worker")


def is_back_by_id(fleet, victim: dict) -> bool:
    now = [m for m in members(fleet, "prefill") if m["worker_id"] == victim["worker_id"]]
    return (
        bool(now)
        and now[0]["state"] == "ready"
        and (now[0]["incarnation"] != victim["incarnation"])
    )
