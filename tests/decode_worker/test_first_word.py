"""A router speaks first: whoever says nothing is refused, and nobody for our own lateness."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from cluster.errors import InvalidRequest
from cluster.wire import identity_to_wire
from cluster.worker_identity import WorkerIdentity
from decode_worker import service
from protos import worker_pb2
from tests.cluster.process.test_own_lateness import comes_while_the_loop_stands
from tests.decode_worker.decode_bench import KEY, PAIRING

WE = WorkerIdentity(KEY, PAIRING)
PATIENCE_S = 0.2


async def says_nothing() -> AsyncIterator[worker_pb2.RouterMessage]:
    await asyncio.Event().wait()
    yield worker_pb2.RouterMessage()


async def speaks_while_our_loop_stands() -> AsyncIterator[worker_pb2.RouterMessage]:
    await comes_while_the_loop_stands(5 * PATIENCE_S)
    yield worker_pb2.RouterMessage(open=identity_to_wire(WE))


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_WORD_TIMEOUT_S", PATIENCE_S)


async def test_a_router_that_says_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="begins with `open`"):
        await service._hear_who_is_meant(says_nothing(), WE, time.monotonic)


async def test_a_first_word_that_came_while_our_own_loop_stood_is_heard() -> None:
    await service._hear_who_is_meant(speaks_while_our_loop_stands(), WE, time.monotonic)
