"""A fleet of one decode worker of several ranks that loses one of them: how long nobody answers."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import httpx

from benchmarks.fleet_state import is_replaced, seconds_until, state_of
from benchmarks.local_fleet import LocalFleet, whole_fleet

START_TIMEOUT_S = 180.0
_PATIENCE_S = 0.02
"""Between two tries of a client that is refused."""


def serving_again_s(model: str, num_ranks: int, *, num_spares: int, rounds: int) -> list[float]:
    """Seconds from SIGKILL to the first token of a request that was sent after it, as its client
    sees them. A spare, where there are any, has been loaded before each round."""
    flags = ("--prefill", "0", "--tensor-parallel-size", str(num_ranks), "--model", model)
    memory = ("--max-context-tokens", "2048", "--kv-memory-bytes", str(256 * 2**20))
    spares = ("--warm-spares", str(num_spares))
    with whole_fleet(*flags, *memory, *spares, num_workers=1) as fleet:
        return [asyncio.run(_lose_one(fleet, model, num_spares)) for _ in range(rounds)]


async def _lose_one(fleet: LocalFleet, model: str, num_spares: int) -> float:
    async def are_warm() -> bool:
        state = await state_of(fleet)
        return len(state.spares) >= num_spares and bool(state.members)

    if await seconds_until(are_warm, START_TIMEOUT_S) is None:
        raise RuntimeError(f"no spare is loaded within {START_TIMEOUT_S:g} s")
    (victim,) = (await state_of(fleet)).members
    os.kill(victim.ranks[-1].pid, signal.SIGKILL)
    lost_s = time.monotonic()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{fleet.port}", timeout=60) as client:
        while not await _answers(client, model):
            await asyncio.sleep(_PATIENCE_S)
    waited_s = time.monotonic() - lost_s
    await seconds_until(lambda: is_replaced(fleet, victim), START_TIMEOUT_S)
    return waited_s


async def _answers(client: httpx.AsyncClient, model: str) -> bool:
    request = {"model": model, "prompt": "Lanterns hung above", "max_tokens": 1}
    try:
        return (await client.post("/v1/completions", json=request)).status_code == 200
    except httpx.HTTPError:
        return False
