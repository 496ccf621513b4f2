"""What a lane leaves behind of a task whose caller was told."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from prometheus_client import CollectorRegistry

from cluster.errors import InternalError, InvalidRequest, NotReady, SplitserveError
from cluster.grammar import Grammar, GrammarKind
from cluster.models.card import ModelCard
from cluster.process.background import cancel
from router.front.caller import Caller
from router.front.text_work import Door, ReadBody
from router.telemetry.metrics import TextMetrics
from router.text_worker.lane import LONGEST_ABSENCE_S, TextLane
from router.text_worker.limits import TextLimits
from router.text_worker.messages import ReadLarge, Setup, TryGrammar
from router.text_worker.spare import SpareProcess
from router.text_worker.text_process import TaskRefused, TextProcess, TextProcessEnded
from tests.engine.step.engine_scenario import VirtualClock
from tests.router.memory import traced

NUM_BYTES = 4 << 20


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


class _Failing:
    """A TextProcess whose tasks all end in the same way."""

    has_ended = False

    def __init__(self, asked: list[bytes], outcome: Exception) -> None:
        self.pid = os.getpid()
        self._asked = asked
        self._outcome = outcome

    async def begin(self, niceness: int, *, with_grammars: bool = False) -> None: ...

    async def ask(self, head: bytes, body: bytes) -> ReadBody:
        self._asked.append(body[:1])
        raise self._outcome

    async def wait_for_end(self) -> int:
        await asyncio.Event().wait()
        raise AssertionError("nothing sets it")

    def kill(self) -> None:
        raise AssertionError("it is no process")

    async def end(self) -> int:
        return 0


@pytest.mark.parametrize(
    "outcome",
    [
        TaskRefused(InvalidRequest("too many tokens"), 200_000),
        TextProcessEnded(-signal.SIGXCPU),
        TextProcessEnded(-signal.SIGABRT),
    ],
)
async def test_work_that_ends_in_a_refusal_counts_as_what_it_was(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch, outcome: Exception
) -> None:
    """Another address's body of 50 kB, due after 49 s, goes before the next of 1 kB."""
    asked = await _order_of_asking(card, monkeypatch, outcome)
    assert asked == [b"a", b"z", b"b"]


async def test_a_task_whose_process_was_lost_counts_as_its_body(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await _order_of_asking(card, monkeypatch, TextProcessEnded(-signal.SIGKILL))
    assert asked == [b"a", b"b", b"z"]


@pytest.mark.parametrize(
    ("door", "num_bytes", "order"),
    [
        (Door.RERANK, 2_000_000, b"azb"),
        (Door.RERANK, 4_000_000, b"abz"),
        (Door.EMBEDDINGS, 2_000_000, b"abz"),
    ],
)
async def test_pairs_whose_process_was_ended_count_as_all_that_they_may_become(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch, door: Door, num_bytes: int, order: bytes
) -> None:
    """A limit ends a body of 1 kB after 800 kB of work, and after 2 MiB more where each of its
    documents has the query beside it: another address's body of less goes before the next."""
    outcome = TextProcessEnded(-signal.SIGXCPU)
    asked = await _order_of_asking(card, monkeypatch, outcome, door=door, num_bytes=num_bytes)
    assert b"".join(asked) == order


async def _order_of_asking(
    card: ModelCard,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Exception,
    *,
    door: Door = Door.GRPC,
    num_bytes: int = 50_000,
) -> list[bytes]:
    """Of two bodies of 1 kB from one address and one of `num_bytes` from another."""
    asked: list[bytes] = []

    async def start(setup: Setup) -> _Failing:
        return _Failing(asked, outcome)

    monkeypatch.setattr(TextProcess, "start", start)
    setup = Setup(card, "tiny", TextLimits.for_bodies_of(8 << 20))
    metrics, spare = TextMetrics(CollectorRegistry()), SpareProcess(setup)
    lane = TextLane(setup, "bodies", metrics, spare=spare, clock=VirtualClock())
    often, other = Caller("often", "1"), Caller("other", "1")
    bodies = {b"a" * 1000: often, b"b" * 1000: often, b"z" * num_bytes: other}
    calls = [
        asyncio.ensure_future(lane.call(ReadLarge(door, 100), body, caller=caller))
        for body, caller in bodies.items()
    ]
    await asyncio.sleep(0)
    running = asyncio.ensure_future(lane.run())
    for call in calls:
        with pytest.raises(SplitserveError):
            await call
    await cancel([running])
    return asked
