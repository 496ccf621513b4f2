"""A rank of either pool is lost while streams run through the router: what came is right, every
stream ends, and nothing is left. `benchmarks.bench_rank_points` has twenty points of each pool."""

import asyncio
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from tests.fleet.support import wait_for
from tests.fleet.test_drain import continued
from tests.fleet.test_faults import member, prefill_has_begun
from tests.fleet.test_load import body, is_quiet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
NUM_STREAMS = 8
LIMIT_S = 180.0


@dataclass
class Streamed:
    """What one client has got so far."""

    text: str = ""
    error: str | None = None


async def stream(client, prompt, streamed, *, salt):
    """To its end, which is [DONE], after a typed error or without one."""
    request = body(prompt, max_tokens=16, stream=True, cache_salt=salt)
    async with client.stream("POST", "/v1/completions", json=request) as reply:
        lines = [line.removeprefix("data: ") async for line in reply.aiter_lines() if line]
    for event in (json.loads(line) for line in lines if line.startswith("{")):
        if "error" in event:
            streamed.error = event["error"]["code"]
        else:
            streamed.text += "".join(choice["text"] for choice in event["choices"])
    assert lines[-1] == "[DONE]" or streamed.error


async def streams_hurt(fleet, reference, victim, how, *, salt):
    """Of prompts that nobody has computed before; a rank of the victim is hurt in their midst."""
    asked = range(16 - NUM_STREAMS, 16)
    answers = [Streamed() for _ in asked]
    async with httpx.AsyncClient(base_url=fleet.url, timeout=LIMIT_S) as client:
        running = [
            asyncio.create_task(stream(client, reference.prompts[index], streamed, salt=salt))
            for index, streamed in zip(asked, answers, strict=True)
        ]
        await prefill_has_begun(victim["address"])
        os.kill(victim["ranks"][1]["pid"], how)
        await asyncio.gather(*running)
    for index, streamed in zip(asked, answers, strict=True):
        expected = reference.tokenizer.decode(reference.answers[index], skip_special_tokens=True)
        assert expected == streamed.text or (streamed.error and expected.startswith(streamed.text))
    return answers


def is_replaced(fleet, victim):
    """Its pool has another worker, which is ready. Without a check: who stands still would not
    answer it."""
    members = fleet.status(check=False)["members"]
    rest = [m for m in members if m["role"] == victim["role"]]
    return [(m["incarnation"] != victim["incarnation"], m["state"]) for m in rest] == [
        (True, "ready")
    ]


def processes_of(victim):
    """The worker's server, and its ranks."""
    return [victim["pid"], *(rank["pid"] for rank in victim["ranks"])]


def segments_of(pids):
    """Shared memory with a name that these have mapped; what has none is gone with them."""
    maps = [line for pid in pids for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    paths = {line.split(maxsplit=5)[-1] for line in maps if "/dev/shm/" in line}
    return {path for path in paths if not path.endswith(" (deleted)")}


def folder_of(victim):
    """Where its server and its engine have their sockets."""
    held = [Path(file.path).parent for file in psutil.Process(victim["pid"]).open_files()]
    (folder,) = {path for path in held if path.name.startswith("splitserve-engine-")}
    return folder


async def test_a_rank_lost_in_either_pool_under_load_costs_no_wrong_token_and_leaves_nothing(
    unequal_fleet, reference
):
    fleet = unequal_fleet
    killed, stopped = (member(fleet, role) for role in ("decode", "prefill"))
    lost = processes_of(killed) + processes_of(stopped)
    folders = [folder_of(killed), folder_of(stopped)]
    assert segments_of(lost) == set(), "there is no name that could be left"
    answers = await streams_hurt(fleet, reference, killed, signal.SIGKILL, salt="killed")
    assert any(streamed.error for streamed in answers) or continued(fleet) > 0
    wait_for(lambda: is_replaced(fleet, killed), timeout_s=LIMIT_S, what="a new decode worker")
    answers = await streams_hurt(fleet, reference, stopped, signal.SIGSTOP, salt="stopped")
    assert [streamed.error for streamed in answers] == [None] * NUM_STREAMS
    wait_for(lambda: is_quiet(fleet), timeout_s=LIMIT_S, what="every block back")
    wait_for(
        lambda: (
            not any(psutil.pid_exists(pid) for pid in lost)
            and not any(folder.exists() for folder in folders)
        ),
        timeout_s=LIMIT_S,
        what="an end of all that was lost",
    )
    both = {(role, "rank_lost") for role in ("prefill", "decode")}
    wait_for(
        lambda: both <= fleet.status(check=False)["restarts"].keys(),
        timeout_s=LIMIT_S,
        what="two restarts by that cause",
    )
