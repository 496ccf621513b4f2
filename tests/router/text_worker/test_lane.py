"""What a lane leaves behind of a task whose caller was told."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from cluster.errors import NotReady
from cluster.models.card import ModelCard
from router.front.text_work import Door
from router.telemetry.metrics import TextMetrics
from router.text_worker.lane import TextLane
from router.text_worker.limits import TextLimits
from router.text_worker.messages import ReadLarge, Setup
from router.text_worker.spare import SpareProcess
from tests.router.memory import traced

NUM_BYTES = 4 << 20


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_body_that_nobody_reads_is_gone_once_its_caller_is_told(
    card: ModelCard, no_collector: None
) -> None:
    setup = Setup(card, "tiny", TextLimits.for_bodies_of(8 << 20))
    lane = TextLane(setup, "alone", TextMetrics(CollectorRegistry()), spare=SpareProcess(setup))
    with traced() as held_bytes:
        body = bytes(NUM_BYTES)
        reading = asyncio.ensure_future(lane.call(ReadLarge(Door.GRPC, 100), body))
        await asyncio.sleep(0)
        lane.close()
        await asyncio.wait((reading,))
        assert isinstance(reading.exception(), NotReady)
        del body, reading, lane
        assert held_bytes() < NUM_BYTES
