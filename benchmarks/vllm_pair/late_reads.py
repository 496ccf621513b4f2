"""Answers whose prompts' blocks are read after their lease, while others use these blocks."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from benchmarks.vllm_pair.asking import ERROR, Ask, ask_all, asked, at_one, token_ids
from benchmarks.vllm_pair.late_door import LateDoor
from benchmarks.vllm_pair.prompts import question, short
from benchmarks.vllm_pair.servers import VllmServers
from cluster.process.background import cancel

HOLD_LEASES = 1.5
"""So long is the line."""
AT_ONCE = 12
FLOOD_AT_ONCE = 8
FLOOD_PAUSE_S = 0.3
"""Between floods: the servers have other things to do as well."""
NEW_TOKENS = 10


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to ask for, and by whom: so many answers that stood in line, or as many as come about in
    `most_s`."""

    name: str
    num_late: int
    most_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """To one question."""

    number: int
    prompt: str
    text: str
    request_id: str
    is_late: bool = False
    """Whether it brought blocks to the decode server, and stood in line for longer than their
    lease."""

    @property
    def is_error(self) -> bool:
        """True where it is none."""
        return self.text.startswith(ERROR)


async def late_answers(
    http: httpx.AsyncClient, ask: Ask, door: LateDoor, servers: VllmServers, wanted: Wanted
) -> list[Answer]:
    """Of one way to ask, by their numbers. Raises httpx.HTTPError where a server is lost."""
    door.held.clear()
    numbers, answers = itertools.count(), list[Answer]()
    until_s = time.monotonic() + wanted.most_s

    async def ask_on() -> None:
        while len(door.held) < wanted.num_late and time.monotonic() < until_s:
            number = next(numbers)
            prompt, name = question(f"{wanted.name} {number}"), f"{wanted.name}-{number}"
            text = await asked(ask, prompt, NEW_TOKENS, name)
            answers.append(Answer(number, prompt, text, name))
            if len(answers) % AT_ONCE == 0:
                print(f"  {wanted.name}: {len(answers)} answers, {len(door.held)} late", flush=True)

    door.hold_s = HOLD_LEASES * servers.lease_s
    try:
        async with _flooded(http, servers.prefill):
            await asyncio.gather(*(ask_on() for _ in range(AT_ONCE)))
    finally:
        door.hold_s = 0.0
    by_number = sorted(answers, key=lambda answer: answer.number)
    return [await _with_lateness(http, servers.prefill[0], door, answer) for answer in by_number]


async def _with_lateness(
    http: httpx.AsyncClient, url: str, door: LateDoor, answer: Answer
) -> Answer:
    is_late = answer.prompt in door.held
    is_late = is_late or await token_ids(http, url, answer.prompt) in door.held
    return Answer(answer.number, answer.prompt, answer.text, answer.request_id, is_late)


@asynccontextmanager
async def _flooded(http: httpx.AsyncClient, urls: Sequence[str]) -> AsyncIterator[None]:
    """Others' prompts at all of these servers, whose blocks are used again and again."""

    async def flood(url: str) -> None:
        for number in itertools.count():
            prompts = [short(f"flood {url} {number} {i}") for i in range(FLOOD_AT_ONCE)]
            await ask_all(at_one(http, url), prompts, 1, FLOOD_AT_ONCE, f"flood-{number}")
            await asyncio.sleep(FLOOD_PAUSE_S)

    floods = [asyncio.create_task(flood(url)) for url in urls]
    try:
        yield
    finally:
        await cancel(floods)
