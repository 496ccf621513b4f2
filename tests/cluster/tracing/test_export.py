"""Spans leave by a thread, and nobody waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from cluster.process.background import cancel
from cluster.tracing import export
from cluster.tracing.export import CollectorAway, SpanCounts, SpanExport
from cluster.tracing.span import FinishedSpan

WAIT_S = 60.0


class Writer:
    """Takes batches, or raises what it is told to."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.fault: Exception | None = None
        self.may_go = threading.Event()
        self.may_go.set()
        self.has_entered = threading.Event()
        self.is_closed = False

    def write(self, spans: Sequence[FinishedSpan]) -> None:
        self.has_entered.set()
        assert self.may_go.wait(WAIT_S)
        if self.fault is not None:
            raise self.fault
        self.batches.append(len(spans))

    def close(self) -> None:
        self.is_closed = True
        self.may_go.set()


def spans(number: int) -> list[FinishedSpan]:
    one = FinishedSpan(
        trace_id=b"t" * 16, span_id=b"s" * 8, parent_id=b"", state="", name="x",
        start_ns=1, end_ns=2,
    )  # fmt: skip
    return [one] * number


class Bench:
    def __init__(self) -> None:
        self.writer, self.registry = Writer(), CollectorRegistry()
        self.export = SpanExport(self.writer, SpanCounts(self.registry))

    def count(self, outcome: str) -> float | None:
        return self.registry.get_sample_value("splitserve_trace_spans_total", {"outcome": outcome})

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.001)


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.create_task(bench.export.run())
    try:
        yield
    finally:
        await cancel([task])
        await bench.export.close()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "BATCH_EVERY_S", 0.005)


async def test_what_waits_is_written_in_batches_and_counted() -> None:
    bench = Bench()
    bench.export.add(spans(export.MAX_BATCH_SPANS + 3))
    async with running(bench):
        await bench.until(lambda: len(bench.writer.batches) == 2)
    assert bench.writer.batches == [export.MAX_BATCH_SPANS, 3]
    assert (bench.count("exported"), bench.count("dropped")) == (export.MAX_BATCH_SPANS + 3, 0)
    assert bench.writer.is_closed


async def test_nobody_waits_for_a_writer_that_stands_and_what_is_too_much_is_dropped() -> None:
    bench = Bench()
    bench.writer.may_go.clear()
    async with running(bench):
        bench.export.add(spans(1))
        await bench.until(bench.writer.has_entered.is_set)
        bench.export.add(spans(export.MAX_WAITING_SPANS))
        bench.export.add(spans(5))
        assert bench.count("dropped") == 5
        bench.writer.may_go.set()
        await bench.until(lambda: sum(bench.writer.batches) == 1 + export.MAX_WAITING_SPANS)


async def test_a_collector_that_is_away_is_said_once_and_that_it_is_back() -> None:
    bench = Bench()
    with capture_logs() as lines:
        async with running(bench):
            bench.writer.fault = CollectorAway("UNAVAILABLE: nobody listens")
            for number in range(1, 4):
                bench.export.add(spans(2))
                await bench.until(lambda lost=2 * number: bench.count("dropped") == lost)
            bench.writer.fault = None
            bench.export.add(spans(2))
            await bench.until(lambda: bench.count("exported") == 2)
    assert [
        (line["log_level"], line.get("reason"), line.get("num_lost_spans")) for line in lines
    ] == [
        ("warning", "UNAVAILABLE: nobody listens", None),
        ("info", None, 6),
    ]


async def test_a_bug_ends_the_thread_with_its_cause_for_its_owner_to_start_another() -> None:
    bench = Bench()
    bench.writer.fault = ZeroDivisionError()
    bench.export.add(spans(4))
    with pytest.raises(ZeroDivisionError):
        await bench.export.run()
    assert bench.count("dropped") == 4
    bench.writer.fault = None
    bench.export.add(spans(1))
    async with running(bench):
        await bench.until(lambda: bench.count("exported") == 1)


async def test_what_waits_at_the_end_is_written_before_it_is_closed() -> None:
    bench = Bench()
    async with running(bench):
        bench.export.add(spans(7))
    assert sum(bench.writer.batches) == 7 and bench.writer.is_closed


async def test_an_end_does_not_wait_for_a_writer_that_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(export, "LAST_BATCHES_S", 0.01)
    bench = Bench()
    bench.writer.may_go.clear()
    async with running(bench):
        bench.export.add(spans(1))
        await bench.until(bench.writer.has_entered.is_set)
    assert bench.writer.is_closed
