"""A probe that is asked again and again: how often one answer came in a row, and what follows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.mini_cluster.history import Object

Ask = Callable[[Object], Awaitable[str]]
"""Asks once: what is wrong, or ""."""
_PERIOD_S = 10
_FAILURES = 3


async def until_it_passes(probe: Object, ask: Ask) -> str:
    """Of a start: what was wrong last, if it failed too often; "" as soon as it has passed."""
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    wrong = ""
    for _ in range(probe.get("failureThreshold", _FAILURES)):
        wrong = await ask(probe)
        if not wrong:
            return ""
        await asyncio.sleep(probe.get("periodSeconds", _PERIOD_S))
    return wrong


async def until_it_fails(probe: Object, ask: Ask) -> str:
    """Of life: what was wrong, once it has been wrong too often in a row."""
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    failures = 0
    while True:
        wrong = await ask(probe)
        failures = failures + 1 if wrong else 0
        if failures >= probe.get("failureThreshold", _FAILURES):
            return wrong
        await asyncio.sleep(probe.get("periodSeconds", _PERIOD_S))


async def tell_changes(probe: Object, ask: Ask, tell: Callable[[bool], None]) -> None:
    """Of readiness, for ever: tells when enough answers in a row say the other thing. It begins as
    not ready."""
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    is_ready, others = False, 0
    while True:
        passes = not await ask(probe)
        others = 0 if passes == is_ready else others + 1
        wanted = probe.get("successThreshold", 1) if passes else probe.get("failureThreshold", 3)
        if others and others >= wanted:
            is_ready, others = passes, 0
            tell(is_ready)
        await asyncio.sleep(probe.get("periodSeconds", _PERIOD_S))
