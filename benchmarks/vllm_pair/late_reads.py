"""Answers whose prompts' blocks are read after their lease, while others use these blocks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from benchmarks.vllm_pair.asking import Ask, ask_all, at_one
from benchmarks.vllm_pair.late_door import LateDoor
from benchmarks.vllm_pair.prompts import question, short
from benchmarks.vllm_pair.servers import LEASE_S
from cluster.process.background import cancel

HOLD_S = 1.5 * LEASE_S
AT_ONCE = 6
FLOOD_AT_ONCE = 8
NEW_TOKENS = 8


@dataclass(frozen=True, slots=True)
class LateGoal:
    """What to ask for."""

    name: str
    num_late: int
    most_asked: int


@dataclass(frozen=True, slots=True)
class LateAnswers:
    """Of one way to ask."""

    prompts: Sequence[str]
    texts: Sequence[str]
    num_held: int
    """Requests that brought blocks to the decode server, and stood in line for longer than the
    blocks' lease."""

    @property
    def num_errors(self) -> int:
        """That got no answer."""
        return sum(text.startswith("error:") for text in self.texts)

    def wrong(self, right: Sequence[str]) -> list[tuple[str, str]]:
        """Answers beside those of a single server, where they differ."""
        pairs = zip(self.texts, right, strict=True)
        return [(t, r) for t, r in pairs if t != r and not t.startswith("error:")]


async def late_answers(
    http: httpx.AsyncClient, ask: Ask, door: LateDoor, prefill: Sequence[str], goal: LateGoal
) -> LateAnswers:
    """Asks until so many have stood in line: a router asks without blocks for a while where reads
    have failed, and such answers do not count as late."""
    before, prompts, texts = door.num_held, list[str](), list[str]()
    door.hold_s = HOLD_S
    async with _flooded(http, prefill):
        while door.num_held - before < goal.num_late and len(texts) < goal.most_asked:
            more = [question(f"{goal.name} {len(prompts) + i}") for i in range(AT_ONCE)]
            prompts += more
            texts += await ask_all(ask, more, NEW_TOKENS, AT_ONCE)
            print(f"  {goal.name}: {len(texts)} answers, {door.num_held - before} late", flush=True)
    door.hold_s = 0.0
    return LateAnswers(prompts, texts, door.num_held - before)


@asynccontextmanager
async def _flooded(http: httpx.AsyncClient, urls: Sequence[str]) -> AsyncIterator[None]:
    """Others' prompts at all of these servers, whose blocks are used again and again."""

    async def flood(url: str) -> None:
        for number in itertools.count():
            prompts = [short(f"flood {url} {number} {i}") for i in range(FLOOD_AT_ONCE)]
            await ask_all(at_one(http, url), prompts, 1, FLOOD_AT_ONCE)

    floods = [asyncio.create_task(flood(url)) for url in urls]
    try:
        yield
    finally:
        await cancel(floods)
