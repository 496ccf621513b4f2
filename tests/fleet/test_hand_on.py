"""What a worker has cached stays in the fleet when it leaves, or changes its role."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from cluster.deadline import Deadline
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.join_token import operators_token
from cluster.scaling.scaler import ScaleOrder, wait_until_ready
from cluster.scaling.supervised import SupervisedScaler
from tests.cli.run_cli import clean_environ, cli
from tests.fleet.support import wait_for
from tests.fleet.test_load import body, is_quiet

pytestmark = [pytest.mark.slow, pytest.mark.minutes, pytest.mark.timeout(400)]
DEADLINE_S = 100


async def told(fleet: Any, *words: str) -> str:
    """A command that changes the fleet, to its end; what it said."""
    waiting = ("--yes", "--wait", "--deadline", str(DEADLINE_S))
    arguments = (*words, "--grpc", fleet.grpc_address, *waiting)
    done = await asyncio.to_thread(
        cli, *arguments, environ=clean_environ(), timeout_s=DEADLINE_S + 60.0
    )
    said = str(done.stdout + done.stderr)
    assert done.returncode == 0, said
    return said


def workers(fleet: Any, role: str) -> list[str]:
    members = fleet.status(check=False)["members"]
    return sorted(m["worker_id"] for m in members if m["role"] == role and m["state"] == "ready")


async def until_there_are(fleet: Any, role: str, number: int) -> None:
    await asyncio.to_thread(
        wait_for,
        lambda: len(workers(fleet, role)) == number,
        timeout_s=60,
        what=f"{number} {role} workers",
    )


async def ask(client: httpx.AsyncClient, prompt: list[int]) -> tuple[str, int]:
    """The text, and how many tokens of the prompt were cached."""
    reply = await client.post("/v1/completions", json=body(prompt, max_tokens=8, temperature=0))
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    details = answer["usage"].get("prompt_tokens_details") or {}
    return answer["choices"][0]["text"], details.get("cached_tokens", 0)


async def drain(fleet: Any, *names: str) -> None:
    """Nothing comes there any more; what they have cached stays where it is."""
    for name in names:
        await told(fleet, "drain", name, "--no-hand-on")


async def come_back(fleet: Any, *names: str) -> None:
    for name in names:
        words = ("uncordon", name, "--grpc", fleet.grpc_address)
        done = await asyncio.to_thread(cli, *words, environ=clean_environ())
        assert done.returncode == 0, done.stderr


async def leave(fleet: Any, pool: str, *names: str, left: int) -> None:
    """Those that are named, whatever is lost."""
    scaler = SupervisedScaler(GrpcDialer(operators_token()), fleet.grpc_address)
    try:
        await scaler.scale(ScaleOrder(pool=pool, size=left, leaving=names))
        deadline = Deadline.after(DEADLINE_S)
        await wait_until_ready(scaler, {pool: left}, deadline, asyncio.sleep)
    finally:
        await scaler.close()


async def handed_on(fleet: Any, worker_id: str) -> str:
    """What the router's newest event says of it."""
    words = ("events", "-o", "json", "--grpc", fleet.grpc_address)
    done = await asyncio.to_thread(cli, *words, environ=clean_environ())
    events = json.loads(done.stdout)
    causes = [e["cause"] for e in events if e["kind"] == "handed on" and e["subject"] == worker_id]
    return str(causes[-1])


async def test_a_prefix_outlives_its_worker_when_its_pool_shrinks_and_when_it_is_flipped(
    pair_fleet: Any, reference: Any
) -> None:
    first = (list(reference.prompts[0]) * 40)[:700]
    second = first[::-1]
    fleet = pair_fleet
    async with httpx.AsyncClient(base_url=fleet.url, timeout=120) as client:
        await told(fleet, "scale", "decode=2")
        await until_there_are(fleet, "decode", 2)
        await drain(fleet, "prefill-0", "decode-0")
        text, _ = await ask(client, first)  # computed by decode-1 alone
        await come_back(fleet, "decode-0")
        await leave(fleet, "decode", "decode-1", left=1)
        assert "to decode-0" in await handed_on(fleet, "decode-1")
        kept, hit = await ask(client, first)
        assert (kept, hit > 600) == (text, True)
        await come_back(fleet, "prefill-0")
        await told(fleet, "scale", "decode=2")
        await until_there_are(fleet, "decode", 2)
        await drain(fleet, "prefill-0", "decode-0")
        text, _ = await ask(client, second)
        await come_back(fleet, "decode-0")
        said = await told(fleet, "flip", "decode-1", "prefill")
        assert "to prefill-1" in said and "gave its place to a prefill worker" in said, said
        await until_there_are(fleet, "decode", 1)
        kept, hit = await ask(client, second)
        assert (kept, hit > 600) == (text, True)
        await come_back(fleet, "prefill-0")
        await leave(fleet, "prefill", "prefill-1", left=1)
    await asyncio.to_thread(wait_for, lambda: is_quiet(fleet), timeout_s=60, what="quiet")
