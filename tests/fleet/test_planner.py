"""A pool that a planner sizes: it grows under load and shrinks after it, and no request fails."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.fleet.support import clean_environment, wait_for
from tests.fleet.test_load import is_quiet
from tests.fleet.test_scale import load_on

pytestmark = [pytest.mark.slow, pytest.mark.minutes, pytest.mark.timeout(600)]
QUICK = {
    "look-interval-s": "0.5",
    "scale-target": "0.05",
    "grow-after-s": "1",
    "grow-every-s": "2",
    "shrink-after-s": "3",
    "shrink-every-s": "1",
}
"""One sequence that is decoded takes more than a twentieth of the budget; none takes nothing."""
CHANGE_S = 120


@asynccontextmanager
async def planner(fleet, pools: str, *words: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Beside a fleet, until the end of the block; it ends well."""
    options = [f"--{name}={value}" for name, value in QUICK.items()]
    command = [sys.executable, "-m", "cli", "planner", "--router", fleet.grpc_address]
    command += ["--pools", pools, *options, *words]
    process = subprocess.Popen(command, env=clean_environment())
    try:
        yield process
        assert process.poll() is None, "the planner has ended by itself"
    finally:
        process.terminate()
        code = await asyncio.to_thread(process.wait, 60)
    assert code == 0


async def until(condition, what: str) -> None:
    await asyncio.to_thread(wait_for, condition, timeout_s=CHANGE_S, what=what)


def num_decode_workers(fleet) -> int:
    """That take requests."""
    members = fleet.status(check=False)["members"]
    return sum(m["role"] == "decode" and m["state"] == "ready" for m in members)


async def events_of(fleet) -> list[str]:
    """Of planners, in words."""
    words = (sys.executable, "-m", "cli", "events", "--grpc", fleet.grpc_address)
    done = await asyncio.to_thread(
        subprocess.run, words, env=clean_environment(), capture_output=True, text=True
    )
    return [line for line in done.stdout.splitlines() if "planned" in line]


async def test_a_pool_grows_under_load_and_shrinks_after_it(pair_fleet, reference):
    async with planner(pair_fleet, "decode=1..2"):
        async with load_on(pair_fleet, reference) as load:
            await until(lambda: num_decode_workers(pair_fleet) == 2, "two decode workers")
            num_before = load.num_right
            await until(lambda: load.num_right > num_before, "answers of two")
        await until(lambda: num_decode_workers(pair_fleet) == 1, "one decode worker")
    assert load.faults == []
    begun = [event for event in await events_of(pair_fleet) if "begun" in event]
    grown, shrunk = begun[-2:]
    assert "from 1 to 2, begun: decode steps take" in grown
    assert "from 2 to 1, begun:" in shrunk and "one worker less is enough" in shrunk
    await until(lambda: is_quiet(pair_fleet), "quiet")


async def test_a_pool_that_is_too_large_shrinks_under_load_and_no_request_fails(
    pair_fleet, reference
):
    async with load_on(pair_fleet, reference) as load:
        async with planner(pair_fleet, "decode=2..2"):
            await until(lambda: num_decode_workers(pair_fleet) == 2, "two decode workers")
        async with planner(pair_fleet, "decode=1..1"):
            await until(lambda: num_decode_workers(pair_fleet) == 1, "one decode worker")
        num_before = load.num_right
        await until(lambda: load.num_right > num_before, "answers of one")
    assert load.faults == []
    begun = [event for event in await events_of(pair_fleet) if "begun" in event]
    assert "decode may have 1 at most" in begun[-1]


async def test_a_dry_run_says_what_it_would_do_and_the_pool_stays(pair_fleet):
    async with planner(pair_fleet, "decode=2..2", "--dry-run"):
        heard: list[str] = []

        async def hear() -> None:
            heard[:] = [e for e in await events_of(pair_fleet) if "dry run" in e]

        for _ in range(CHANGE_S):
            await hear()
            if heard:
                break
    assert "from 1 to 2, dry run: decode keeps at least 2" in heard[-1]
    assert num_decode_workers(pair_fleet) == 1
