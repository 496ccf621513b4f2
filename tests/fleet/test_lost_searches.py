"""A decode worker is killed under beam searches: they are done over elsewhere, with the answers
that they would have had, streams beside them go on, and every block comes back."""

import asyncio
import os
import signal

import httpx
import pytest

from cluster.rpc import open_channel
from protos import worker_pb2, worker_pb2_grpc
from tests.fleet.put_directly import members_of
from tests.fleet.support import fleet_channel, wait_for
from tests.fleet.test_beams import assert_close, over_grpc
from tests.fleet.test_load import is_quiet
from tests.fleet.test_parity import generate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NUM_TOKENS = 150
"""Of a search: seconds of steps, far more than a signal needs."""
WIDTH = 4
LIMIT_S = 180.0


async def searching(fleet):
    """A decode worker whose engine decodes, as soon as there is one."""
    async with fleet_channel(fleet.grpc_address) as router:
        members = [member for member in await members_of(router) if member.role == "decode"]
    async with asyncio.timeout(LIMIT_S):
        while True:
            for member in members:
                async with fleet_channel(member.address) as channel:
                    admin = worker_pb2_grpc.WorkerAdminStub(channel)
                    status = await admin.Status(worker_pb2.StatusRequest())
                if status.load.num_running >= WIDTH:
                    return status


async def num_retries(fleet):
    """Requests that were sent to another worker before their client had anything."""
    async with httpx.AsyncClient(timeout=LIMIT_S) as client:
        page = (await client.get(f"{fleet.url}/metrics")).text
    return next(
        float(line.split()[1])
        for line in page.splitlines()
        if line.startswith("splitserve_retries_total ")
    )


async def test_searches_whose_worker_is_killed_have_the_answers_of_undisturbed_ones(
    double_fleet, reference
):
    prompts, stream = reference.prompts[:2], reference.prompts[3]
    expected = [await over_grpc(double_fleet, prompt, WIDTH, NUM_TOKENS) for prompt in prompts]
    before = await num_retries(double_fleet)
    async with open_channel(double_fleet.grpc_address) as channel:
        asked = [
            asyncio.create_task(over_grpc(double_fleet, prompt, WIDTH, NUM_TOKENS))
            for prompt in prompts
        ]
        streamed = asyncio.create_task(generate(channel, stream))
        victim = await searching(double_fleet)
        os.kill(victim.engine_pid, signal.SIGKILL)
        found = await asyncio.gather(*asked)
        tokens, _ = await streamed
    assert await num_retries(double_fleet) > before
    assert tokens == reference.answers[3]
    for answers, undisturbed in zip(found, expected, strict=True):
        assert [tokens for tokens, _ in answers] == [tokens for tokens, _ in undisturbed]
        assert all(len(tokens) == NUM_TOKENS for tokens, _ in answers)
        assert_close([score for _, score in answers], [score for _, score in undisturbed])
    await asyncio.to_thread(
        wait_for,
        lambda: len(double_fleet.status()["members"]) == 4 and is_quiet(double_fleet),
        timeout_s=LIMIT_S,
        what="a whole fleet at rest",
    )
