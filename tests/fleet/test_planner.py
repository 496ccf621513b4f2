"""A pool that a planner sizes: it grows under load and shrinks after it, and no request fails."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fleet.support import clean_environment, wait_for
from tests.fleet.test_load import is_quiet
from tests.fleet.test_scale import load_on
from tests.patience import PATIENCE

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
END_S = 60.0


@dataclass(frozen=True, slots=True)
class PlannerLog:
    """What a planner has decided, in its own words. Events have them too, where a router has heard
    them in time, and whether an order was answered in time: neither is for sure on a busy
    machine."""

    path: Path

    def ordered(self, change: str) -> str:
        """The latest words about a change such as "from 1 to 2"; empty: there are none."""
        lines = self.path.read_text().splitlines(keepends=True)
        whole = [json.loads(line) for line in lines if line[0] == "{" and line[-1] == "\n"]
        said = [line["words"] for line in whole if line.get("event") == "planned"]
        return next((words for words in reversed(said) if words.startswith(f"{change}, ")), "")


@asynccontextmanager
async def planner(fleet, pools: str, *words: str) -> AsyncIterator[PlannerLog]:
    """Beside a fleet, until the end of the block; it ends well."""
    options = [f"--{name}={value}" for name, value in QUICK.items()]
    command = [sys.executable, "-m", "cli", "planner", "--router", fleet.grpc_address]
    command += ["--pools", pools, *options, *words]
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(command, env=clean_environment(), stderr=log)
        try:
            yield PlannerLog(Path(log.name))
            assert process.poll() is None, "the planner has ended by itself"
        finally:
            process.terminate()
            code = await asyncio.to_thread(process.wait, END_S * PATIENCE)
            print(Path(log.name).read_text())  # shown where a test has failed
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
    async with planner(pair_fleet, "decode=1..2") as log:
        async with load_on(pair_fleet, reference) as load:
            await until(lambda: num_decode_workers(pair_fleet) == 2, "two decode workers")
            num_before = load.num_right
            await until(lambda: load.num_right > num_before, "answers of two")
        await until(lambda: log.ordered("from 2 to 1"), "an order for one less")
        await until(lambda: num_decode_workers(pair_fleet) == 1, "one decode worker")
        assert ": decode steps take" in log.ordered("from 1 to 2")
        assert "one worker less is enough" in log.ordered("from 2 to 1")
    assert load.faults == []
    await until(lambda: is_quiet(pair_fleet), "quiet")


async def test_a_pool_that_is_too_large_shrinks_under_load_and_no_request_fails(
    pair_fleet, reference
):
    async with load_on(pair_fleet, reference) as load:
        async with planner(pair_fleet, "decode=2..2"):
            await until(lambda: num_decode_workers(pair_fleet) == 2, "two decode workers")
        async with planner(pair_fleet, "decode=1..1") as log:
            # Not by the workers alone: one that does not answer in time is not ready for a moment.
            await until(lambda: log.ordered("from 2 to 1"), "an order for one less")
            await until(lambda: num_decode_workers(pair_fleet) == 1, "one decode worker")
            assert "decode may have 1 at most" in log.ordered("from 2 to 1")
        num_before = load.num_right
        await until(lambda: load.num_right > num_before, "answers of one")
    assert load.faults == []


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
