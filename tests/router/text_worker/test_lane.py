"""What a lane leaves behind of a task whose caller was told."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from cluster.errors import InternalError, NotReady
from cluster.grammar import Grammar, GrammarKind
from cluster.models.card import ModelCard
from router.front.text_work import Door
from router.telemetry.metrics import TextMetrics
from router.text_worker.lane import LONGEST_ABSENCE_S, TextLane
from router.text_worker.limits import TextLimits
from router.text_worker.messages import ReadLarge, Setup, TryGrammar
from router.text_worker.spare import SpareProcess
from router.text_worker.text_process import TextProcess
from tests.engine.step.engine_scenario import VirtualClock
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


async def test_grammars_are_refused_at_once_where_no_process_can_be_had_for_them(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, setup = VirtualClock(), Setup(card, "tiny", TextLimits.for_bodies_of(8 << 20))
    metrics, spare = TextMetrics(CollectorRegistry()), SpareProcess(setup)
    lane = TextLane(setup, "grammars", metrics, spare=spare, with_grammars=True, clock=clock)

    async def fails(setup: Setup) -> TextProcess:
        raise InternalError("a text worker ended with 1")

    monkeypatch.setattr(TextProcess, "start", fails)
    clock.now_s += 100.0  # nobody has wanted one so far
    lane.expect()
    waiting = asyncio.ensure_future(lane.call(TryGrammar(Grammar("a", GrammarKind.LARK))))
    await asyncio.sleep(0)
    await _runs_in_vain(lane)
    assert not waiting.done() and lane.num_waiting == 1
    clock.now_s += LONGEST_ABSENCE_S
    await _runs_in_vain(lane)
    with pytest.raises(NotReady, match="the grammars process has not been there for 5 s"):
        await waiting
    with pytest.raises(NotReady, match="has not been there"):
        await lane.call(TryGrammar(Grammar("b", GrammarKind.LARK)))
    assert lane.num_waiting == 0 and lane.absent_s == LONGEST_ABSENCE_S


async def test_texts_wait_for_a_process_that_does_not_come(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their router is not ready, and gets no more of them."""
    clock, setup = VirtualClock(), Setup(card, "tiny", TextLimits.for_bodies_of(8 << 20))
    metrics, spare = TextMetrics(CollectorRegistry()), SpareProcess(setup)
    lane = TextLane(setup, "texts", metrics, spare=spare, clock=clock)

    async def fails(setup: Setup) -> TextProcess:
        raise InternalError("a text worker ended with 1")

    monkeypatch.setattr(TextProcess, "start", fails)
    clock.now_s += LONGEST_ABSENCE_S
    await _runs_in_vain(lane)
    waiting = asyncio.ensure_future(lane.call(ReadLarge(Door.GRPC, 100), b""))
    await asyncio.sleep(0)
    assert not waiting.done() and lane.why_not_ready() is not None
    lane.close()
    with pytest.raises(NotReady, match="shutting down"):
        await waiting


async def _runs_in_vain(lane: TextLane) -> None:
    with pytest.raises(InternalError):
        await lane.run()
