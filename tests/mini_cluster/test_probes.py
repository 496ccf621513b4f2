"""Probes end when they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.mini_cluster.probes import Asked, failure_of


async def test_a_probe_that_is_given_up_ends_although_its_container_breaks_off_just_then() -> None:
    asks = asyncio.Event()

    async def breaks_off(command: Sequence[str]) -> tuple[int, str]:
        asks.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionResetError("the container has ended") from None
        raise AssertionError

    probe = {"exec": {"command": ["true"]}, "timeoutSeconds": 60}
    asking = asyncio.create_task(failure_of(probe, Asked("127.0.0.1", {}, breaks_off)))
    await asks.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_container_that_breaks_off_by_itself_has_failed_its_probe() -> None:
    async def breaks_off(command: Sequence[str]) -> tuple[int, str]:
        raise ConnectionResetError("the container has ended")

    probe = {"exec": {"command": ["true"]}}
    wrong = await failure_of(probe, Asked("127.0.0.1", {}, breaks_off))
    assert wrong == "ConnectionResetError: the container has ended"
