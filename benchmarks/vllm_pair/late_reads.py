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
AT_ONCE = 12
FLOOD_AT_ONCE = 8
FLOOD_PAUSE_S = 0.3
"""Between floods: the servers have other things to do as well."""
NEW_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to ask for, and by whom."""

    name: str
    num_answers: int


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
    http: httpx.AsyncClient, ask: Ask, door: LateDoor, prefill: Sequence[str], wanted: Wanted
) -> LateAnswers:
    """All while the door holds whoever brings blocks: a router whose reads have failed asks without
    them for a while, and is let through."""
    before, texts = door.num_held, list[str]()
    prompts = [question(f"{wanted.name} {number}") for number in range(wanted.num_answers)]
    door.hold_s = HOLD_S
    async with _flooded(http, prefill):
        for first in range(0, len(prompts), AT_ONCE):
            together = prompts[first : first + AT_ONCE]
            texts += await ask_all(ask, together, NEW_TOKENS, AT_ONCE)
            num_late = door.num_held - before
            print(f"  {wanted.name}: {len(texts)} answers, {num_late} late", flush=True)
    door.hold_s = 0.0
    return LateAnswers(prompts, texts, door.num_held - before)


@asynccontextmanager
async def _flooded(http: httpx.AsyncClient, urls: Sequence[str]) -> AsyncIterator[None]:
    """Others' prompts at all of these servers, whose blocks are used again and again."""

    async def flood(url: str) -> None:
        for number in itertools.count():
            prompts = [short(f"flood {url} {number} {i}") for i in range(FLOOD_AT_ONCE)]
            await ask_all(at_one(http, url), prompts, 1, FLOOD_AT_ONCE)
            await asyncio.sleep(FLOOD_PAUSE_S)

    floods = [asyncio.create_task(flood(url)) for url in urls]
    try:
        yield
    finally:
        await cancel(floods)
