"""Pools that grow and shrink under load: no request fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from cluster.process.background import cancel
from tests.cli.run_cli import clean_environ, cli
from tests.fleet.support import wait_for
from tests.fleet.test_load import body, is_quiet
from tests.patience import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.minutes, pytest.mark.timeout(400)]
NUM_ASKING = 2
ANSWER_S = 120
DEADLINE_S = 100


@dataclass
class Load:
    """Requests without a pause, each with a prefix of its own, compared with the reference."""

    reference: Any
    num_right: int = 0
    faults: list[str] = field(default_factory=list)
    is_over: bool = False

    async def keep_asking(self, client: httpx.AsyncClient, asker: int) -> None:
        for turn in range(100_000):
            if self.is_over:
                return
            await self._ask(client, (asker + turn) % 8, f"scale {asker} {turn}")

    async def _ask(self, client: httpx.AsyncClient, index: int, salt: str) -> None:
        request = body(self.reference.prompts[index], max_tokens=16, cache_salt=salt)
        reply = await client.post("/v1/completions", json=request)
        answer = self.reference.answers[index]
        right = self.reference.tokenizer.decode(answer, skip_special_tokens=True)
        if reply.status_code == 200 and reply.json()["choices"][0]["text"] == right:
            self.num_right += 1
        else:
            self.faults.append(reply.text)


@asynccontextmanager
async def load_on(fleet, reference) -> AsyncIterator[Load]:
    """Ends with every request answered, unless the test failed."""
    load = Load(reference)
    async with httpx.AsyncClient(base_url=fleet.url, timeout=ANSWER_S * PATIENCE) as client:
        asking = [asyncio.create_task(load.keep_asking(client, i)) for i in range(NUM_ASKING)]
        try:
            yield load
            load.is_over = True
            await asyncio.gather(*asking)
        finally:
            await cancel(asking)


async def scale(fleet, *words):
    """The command, which waits until the pool is as it was told."""
    waiting = ("--yes", "--wait", "--deadline", str(DEADLINE_S))
    arguments = ("scale", *words, "--grpc", fleet.grpc_address, *waiting)
    limit_s = DEADLINE_S + 60.0
    return await asyncio.to_thread(cli, *arguments, environ=clean_environ(), timeout_s=limit_s)


async def until_prefill_workers(fleet, number: int) -> None:
    def are_there() -> bool:
        members = fleet.status(check=False)["members"]
        ready = [m for m in members if m["role"] == "prefill" and m["state"] == "ready"]
        return len(ready) == number

    await asyncio.to_thread(wait_for, are_there, timeout_s=60, what=f"{number} prefill workers")


async def scaled_up_and_down(fleet, reference):
    """prefill=1, 2 and 1 again, under load."""
    async with load_on(fleet, reference) as load:
        grown = await scale(fleet, "prefill=2")
        assert grown.returncode == 0, grown.stdout + grown.stderr
        assert "prefill-1" in grown.stdout
        await until_prefill_workers(fleet, 2)
        num_before = load.num_right
        shrunk = await scale(fleet, "prefill=1")
        assert shrunk.returncode == 0, shrunk.stdout + shrunk.stderr
        assert "handed on" in shrunk.stdout + shrunk.stderr
        await until_prefill_workers(fleet, 1)
        refused = await scale(fleet, "decode=0")
        assert (refused.returncode, "refused (below_one)" in refused.stderr) == (4, True)
    assert load.faults == []
    assert load.num_right > num_before > 0
    await asyncio.to_thread(wait_for, lambda: is_quiet(fleet), timeout_s=60, what="quiet")


async def test_prefill_from_one_to_two_and_back_under_load_fails_no_request(pair_fleet, reference):
    await scaled_up_and_down(pair_fleet, reference)
