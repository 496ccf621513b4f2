"""Stores of several routers, at one Redis, for tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cluster.process.background import Background, nothing_needed
from router.store.address import read_address
from router.store.names import StoreNames
from router.store.patience import Patience
from router.store.redis_link import RedisLink
from router.store.shared_store import SharedStore

NAMES = StoreNames("tests", "tiny")
PATIENT = Patience(call_s=10, stall_s=20, connect_s=20, first_retry_s=0.01, longest_retry_s=0.01)
"""For what does not test time: a busy machine is never taken for a lost store."""
STRICT = Patience(call_s=0.5, stall_s=1, connect_s=1, first_retry_s=0.01, longest_retry_s=0.05)
"""For a store that is lost within the test."""
LIMIT_S = 60.0


def new_store(url: str, patience: Patience = PATIENT) -> SharedStore:
    """Not there until it runs."""
    return SharedStore(RedisLink(read_address(url)), NAMES, patience=patience)


@asynccontextmanager
async def running(*stores: SharedStore) -> AsyncIterator[None]:
    """All of them, there when the block begins."""
    background = Background(nothing_needed)
    try:
        for store in stores:
            background.keep("shared store", store.run)
        await until(lambda: all(store.is_there for store in stores))
        yield
    finally:
        await background.close()


async def until(is_so: Callable[[], bool]) -> None:
    """Looks again and again, and lets others run."""
    end_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end_s, "it did not come to that"
        await asyncio.sleep(0.001)
