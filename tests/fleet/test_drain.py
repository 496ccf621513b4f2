"""Workers that stop and die under load, one after the other: no request is lost."""

import asyncio
import json
import os
import random
import signal

import httpx
import pytest

from benchmarks.migration_streams import KINDS, Answer, Client
from cluster.process.background import cancel
from tests.fleet.support import wait_for
from tests.fleet.test_faults import prefill_has_begun
from tests.fleet.test_load import body, is_quiet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
NUM_AT_ONCE = 8
NUM_ASKING = 3
"""For as long as two workers take to start again, which every request makes longer."""
MOST_WAVES = 10


@pytest.fixture
def fleet(double_fleet):
    """What is stopped here is started again by the fleet itself."""
    return double_fleet


def member(fleet, worker_id):
    found = [m for m in fleet.status(check=False)["members"] if m["worker_id"] == worker_id]
    return found[0] if found else None


def events(fleet, worker_id, event):
    """What a worker has logged under that name."""
    lines = (fleet.log_path.parent / f"{worker_id}.log").read_text().splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return [record for record in records if record.get("event") == event]


def worker_ids(fleet, role):
    members = fleet.status(check=False)["members"]
    return sorted(m["worker_id"] for m in members if m["role"] == role)


async def restarted(fleet, worker_id, old_incarnation):
    def is_new():
        now = member(fleet, worker_id)
        return now and now["state"] == "ready" and now["incarnation"] != old_incarnation

    await asyncio.to_thread(wait_for, is_new, timeout_s=60, what=f"a new {worker_id}")


async def ask(client, reference, index, *, salt="drain"):
    """Asks for a reference answer; returns what was wrong, or None. Others' KV is not used."""
    request = body(reference.prompts[index], max_tokens=16, cache_salt=salt)
    reply = await client.post("/v1/completions", json=request)
    if reply.status_code != 200:
        return reply.text
    expected = reference.tokenizer.decode(reference.answers[index], skip_special_tokens=True)
    text = reply.json()["choices"][0]["text"]
    return None if text == expected else f"{index}: {text!r}, expected {expected!r}"


async def ask_until_one_computes(client, reference, workers):
    """The first prefill worker that has begun, and all that was asked until then.

    The router may think decode workers cheaper: when all is answered and none has begun, as much is
    asked again.
    """
    asked = []
    watching = {asyncio.create_task(prefill_has_begun(one["address"])): one for one in workers}
    try:
        for wave in range(MOST_WAVES):
            for index in range(8, 8 + NUM_AT_ONCE):  # 127 to 512 tokens
                asking = ask(client, reference, index, salt=f"drain {wave}")
                asked.append(asyncio.create_task(asking))
            answered = asyncio.create_task(asyncio.wait(asked))
            await asyncio.wait((*watching, answered), return_when=asyncio.FIRST_COMPLETED)
            await cancel((answered,))
            for begun, worker in watching.items():
                if begun.done():
                    begun.result()
                    return worker, asked
    finally:
        await cancel(watching)
    raise AssertionError(f"of {len(asked)} prompts none was computed by a prefill worker")


async def test_a_prefill_worker_that_is_asked_to_stop_finishes_its_exports(fleet, reference):
    workers = [member(fleet, worker_id) for worker_id in worker_ids(fleet, "prefill")]
    said_before = len(fleet.log_path.read_text())
    async with httpx.AsyncClient(base_url=fleet.url, timeout=120) as client:
        victim, asked = await ask_until_one_computes(client, reference, workers)
        os.kill(victim["pid"], signal.SIGTERM)
        faults = await asyncio.gather(*asked)
    assert set(faults) == {None}
    worker_id = victim["worker_id"]
    await restarted(fleet, worker_id, victim["incarnation"])
    assert events(fleet, worker_id, "draining")[0]["num_requests"] > 0, "it came too late"
    assert events(fleet, worker_id, "stopping")[0]["num_requests_cut_off"] == 0
    assert "code=worker_lost" not in fleet.log_path.read_text()[said_before:]


def continued(fleet):
    """Answers that have gone on with another decode worker."""
    page = httpx.get(f"{fleet.url}/metrics", timeout=10).text
    lines = [s for s in page.splitlines() if s.startswith("splitserve_streams_continued_total")]
    return sum(float(line.split()[-1]) for line in lines)


async def lose(fleet, streams, victim, how):
    """The decode worker, while it and the other one stream answers of every kind."""
    answers = [Answer(kind, f"{how.name}-{number}") for number, kind in enumerate(KINDS)]
    asking = [asyncio.create_task(streams.ask(a.kind, a.request_id, a)) for a in answers]
    async with asyncio.timeout(120):
        while sum(a.num_pieces > 2 for a in answers) < len(answers) // 2:
            await asyncio.sleep(0.01)
    os.kill(victim["pid"], how)
    await asyncio.gather(*asking)
    assert [a.content for a in answers if not streams.is_right(a, was_retried=True)] == []


async def test_decode_workers_that_stop_and_die_in_turn_lose_no_request(fleet, reference):
    """Nor does an answer that is streamed meanwhile differ from an undisturbed one."""
    faults, num_right, is_over = [], 0, False

    async def keep_asking(client, seed):
        nonlocal num_right
        rng = random.Random(seed)
        while not is_over:
            fault = await ask(client, reference, rng.randrange(12))
            if fault is None:
                num_right += 1
            else:
                faults.append(fault)

    async with httpx.AsyncClient(base_url=fleet.url, timeout=120) as client:
        streams = Client(client)
        await streams.learn()
        clients = [asyncio.create_task(keep_asking(client, i)) for i in range(NUM_ASKING)]
        signals = (signal.SIGTERM, signal.SIGKILL)
        for worker_id, how in zip(worker_ids(fleet, "decode"), signals, strict=True):
            victim = await asyncio.to_thread(member, fleet, worker_id)
            await lose(fleet, streams, victim, how)
            await restarted(fleet, worker_id, victim["incarnation"])
        is_over = True
        await asyncio.gather(*clients)
    assert faults == []
    assert num_right >= NUM_AT_ONCE
    assert continued(fleet) > 0
    wait_for(lambda: is_quiet(fleet), timeout_s=60, what="quiet after the restarts")
