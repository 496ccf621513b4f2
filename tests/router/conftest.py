"""Fixtures of the front door's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.router.front_fakes import Front, running_front


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    """A front whose dispatcher answers `Hello world`."""
    async with running_front() as running:
        yield running
