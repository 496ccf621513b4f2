"""A fleet with traffic, for a page to show: a real router, workers that only keep time.

python -m tests.router.page.busy_fleet [PORT]     serves one to look at, until Ctrl-C
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

from cluster.generation import EngineLoad
from cluster.process.background import cancel
from cluster.wire import load_to_wire
from protos import worker_pb2
from router.tenants.priority import Priority
from tests.router.page.staged import page_of
from tests.router.planes import PAIRING
from tests.router.simulated_fleet import (
    SimulatedDecode,
    SimulatedFleet,
    SimulatedPrefill,
    simulated_fleet,
)

BLOCKS = 4096
CALLERS = (
    ("acme", 10.0, Priority.INTERACTIVE),
    ("globex", 7.0, Priority.STANDARD),
    ("initech", 4.0, Priority.STANDARD),
    ("umbrella", 3.0, Priority.BATCH),
)
"""Tenants, how often they ask in a second, and their classes."""
RUSH = 36
"""Requests that come at once every few seconds, so that a line forms."""


@asynccontextmanager
async def busy_fleet(*, seed: int = 7, **options: object) -> AsyncIterator[SimulatedFleet]:
    """Three prefill and four decode workers, asked at random until the block ends."""
    async with simulated_fleet(num_prefill=3, num_decode=4, seed=seed, **options) as fleet:
        chance = Random(seed)
        fleet.chance = FewPrompts(seed)
        for decode in fleet.decode:
            _show_blocks(decode)
            for prefill in decode._prefill.values():
                _keep_prompts(prefill)
        tasks = [
            asyncio.create_task(
                fleet.ask_at_random(name, per_s, 1e6, priority=priority, answer_tokens=60)
            )
            for name, per_s, priority in CALLERS
        ]
        tasks += [asyncio.create_task(_rush(fleet)), asyncio.create_task(_report(fleet, chance))]
        try:
            yield fleet
        finally:
            await cancel(tasks)
            await cancel(fleet._tasks)


async def _rush(fleet: SimulatedFleet) -> None:
    while True:
        await asyncio.sleep(5)
        for number in range(RUSH):
            name, _, priority = CALLERS[number % 4]
            fleet.ask(name, prompt_tokens=1500, answer_tokens=80, priority=priority)


async def _report(fleet: SimulatedFleet, chance: Random) -> None:
    """What the simulated workers do not say of themselves: blocks and links."""
    plane = fleet.plane
    prefill = [item for item in plane.fleet.members if not item.is_decode]
    decode = [item for item in plane.fleet.members if item.is_decode]
    speeds = {(p.key, d.key): chance.uniform(1.2e9, 7e9) for p in prefill for d in decode}
    while True:
        for item in prefill:
            held = min(BLOCKS // 2, 60 * item.pending_prompts + chance.randrange(40))
            exported = held // 3
            load = EngineLoad(
                total_blocks=BLOCKS,
                free_blocks=BLOCKS - 1900 - held,
                cached_blocks=1900,
                active_blocks=held - exported,
                exported_blocks=exported,
                num_running=min(1, item.pending_prompts),
                num_waiting=max(0, item.pending_prompts - 1),
                prefill_token_ms=0.1,
                prefill_tokens_per_s=9800 + chance.randrange(400),
            )
            plane.store.report(item.key, load)
        for link, speed in speeds.items():
            plane.estimates.links.add(link, int(speed * chance.uniform(0.004, 0.006)), 0.005)
        await asyncio.sleep(0.5)


class FewPrompts(Random):
    """Draws every third prompt of a few, as those of agents and chats are."""

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        if bounds == (2**20,) and super().randrange(3) == 0:
            return 5000 * super().randrange(40)
        return super().randrange(*bounds)


def _keep_prompts(prefill: SimulatedPrefill) -> None:
    """Whole blocks of the longest prompt that began alike."""
    kept: dict[int, int] = {}

    def num_cached(token_ids: Sequence[int]) -> int:
        known = min(kept.get(token_ids[0], 0), len(token_ids) - 1)
        kept[token_ids[0]] = max(len(token_ids), kept.get(token_ids[0], 0))
        return known - known % PAIRING.block_size_tokens

    prefill.num_cached = num_cached  # type: ignore[method-assign]


def _show_blocks(decode: SimulatedDecode) -> None:
    """Each sequence has blocks for its tokens, as an engine's would."""

    def load() -> worker_pb2.EngineLoad:
        running, waiting = len(decode._running), len(decode._waiting)
        active = min(BLOCKS - 900, sum(70 + each.num_tokens // 16 for each in decode._running))
        receiving = min(300, 65 * waiting)
        told = EngineLoad(
            total_blocks=BLOCKS,
            free_blocks=BLOCKS - active - receiving - 600,
            cached_blocks=600,
            active_blocks=active,
            receiving_blocks=receiving,
            num_running=running,
            num_waiting=waiting,
            decode_step_ms=20.0,
            decode_row_ms=0.01,
            prefill_token_ms=0.1,
        )
        return load_to_wire(told)

    decode._load = load  # type: ignore[method-assign]


async def _serve(port: int) -> None:
    async with busy_fleet() as fleet, page_of(fleet.plane, port=port) as page:
        print(page.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
