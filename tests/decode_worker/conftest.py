"""A decode worker, and two prefill workers that say what a test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.decode_worker.decode_bench import PAIRING, Bench, running_decode_worker
from tests.decode_worker.scripted_prefill import ScriptedPrefill, running_prefill


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with running_decode_worker() as running:
        yield running


@pytest.fixture
async def near() -> AsyncIterator[ScriptedPrefill]:
    async with running_prefill("prefill-near", PAIRING) as prefill:
        yield prefill


@pytest.fixture
async def far() -> AsyncIterator[ScriptedPrefill]:
    async with running_prefill("prefill-far", PAIRING) as prefill:
        yield prefill
