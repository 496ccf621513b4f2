"""Workers that an operator drains under load, of real processes: no request fails."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from tests.cli.run_cli import clean_environ, cli
from tests.fleet.support import wait_for
from tests.fleet.test_load import is_quiet
from tests.fleet.test_scale import load_on

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def ordered(fleet, *words: str) -> subprocess.CompletedProcess[str]:
    address = fleet.grpc_address
    arguments, environ = (*words, "--grpc", address), clean_environ()
    return await asyncio.to_thread(cli, *arguments, environ=environ, timeout_s=120.0)


def seen(fleet, worker_id: str) -> dict:
    """As its router sees it."""
    found = cli(
        *("describe", "worker", worker_id, "-o", "json", "--grpc", fleet.grpc_address),
        environ=clean_environ(),
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


async def state_of(fleet, worker_id: str) -> str:
    return (await asyncio.to_thread(seen, fleet, worker_id))["state"]


async def until_new_answers(load) -> None:
    """Several, that came after this."""
    wanted = load.num_right + 6
    async with asyncio.timeout(120):
        while load.num_right < wanted and not load.faults:
            await asyncio.sleep(0.05)


async def test_workers_of_both_roles_drain_under_load_and_come_back(double_fleet, reference):
    async with load_on(double_fleet, reference) as load:
        await until_new_answers(load)
        for worker_id in ("decode-0", "prefill-0"):
            drained = await ordered(double_fleet, "drain", worker_id, "--yes", "--wait")
            assert drained.returncode == 0, drained.stdout + drained.stderr
            assert await state_of(double_fleet, worker_id) == "drained"
            await until_new_answers(load)
            assert await state_of(double_fleet, worker_id) == "drained"
        refused = await ordered(double_fleet, "cordon", "decode-1", "--yes")
        assert (refused.returncode, "last_worker" in refused.stderr) == (4, True), refused.stderr
        for worker_id in ("decode-0", "prefill-0"):
            free = await ordered(double_fleet, "uncordon", worker_id)
            assert free.returncode == 0, free.stderr
            assert await state_of(double_fleet, worker_id) == "ready"
        await until_new_answers(load)
    assert load.faults == []
    await asyncio.to_thread(wait_for, lambda: is_quiet(double_fleet), timeout_s=60, what="quiet")
