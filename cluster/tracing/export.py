"""Finished spans on their way out: a bounded queue, and a thread that writes batches of them.

    add, which never waits -> waiting -> a batch -> written: exported
         '- the queue is full: dropped                '- the collector is away: dropped

That it is away is said once, and that it is back; how many spans were lost is counted. A thread
that fails is started again by its owner, and requests notice nothing of all that.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter

from cluster.logs import get_logger
from cluster.process.thread_call import in_thread
from cluster.tracing.span import FinishedSpan

MAX_WAITING_SPANS = 8192
"""About 10 MB: a thousand requests over all of their processes."""
MAX_BATCH_SPANS = 512
BATCH_EVERY_S = 1.0
LAST_BATCHES_S = 2.0
"""For what is left when the process ends."""
_log = get_logger("tracing")


class CollectorAway(Exception):
    """A batch was not taken; why, in words."""


class SpanWriter(Protocol):
    """The way to a collector. Called from one thread, but `close`."""

    def write(self, spans: Sequence[FinishedSpan]) -> None:
        """Returns when they are taken. Raises CollectorAway, within its own time limit."""

    def close(self) -> None:
        """Ends a `write` that is under way; from any thread."""


class SpanCounts:
    """What became of spans, on a metrics page."""

    def __init__(self, registry: CollectorRegistry) -> None:
        spans = Counter(
            "splitserve_trace_spans",
            "Spans of traced requests: exported, or dropped since the collector was away or slow.",
            ["outcome"],
            registry=registry,
        )
        self.exported, self.dropped = spans.labels("exported"), spans.labels("dropped")


class SpanExport:
    """Of one process. `run` once at a time, on the loop; then `close` once."""

    def __init__(self, writer: SpanWriter, counts: SpanCounts) -> None:
        self._writer = writer
        self._counts = counts
        self._waiting: deque[FinishedSpan] = deque()
        self._wake = threading.Event()
        self._writing = threading.Lock()
        """Held by the one thread that writes."""
        self._is_closing = False
        self._is_away = False
        self._num_lost = 0
        """Since the collector went away."""

    def add(self, spans: Sequence[FinishedSpan]) -> None:
        """From the loop; never waits. All of them go, or none."""
        if len(self._waiting) + len(spans) > MAX_WAITING_SPANS:
            self._counts.dropped.inc(len(spans))
            return
        self._waiting.extend(spans)
        if len(self._waiting) >= MAX_BATCH_SPANS:
            self._wake.set()

    async def run(self) -> None:
        """Until it is closed. Raises what ended the thread."""
        await in_thread("traces", self._write_all)

    async def close(self) -> None:
        """What waits is written, for a moment; then it is lost."""
        self._is_closing = True
        self._wake.set()
        try:
            async with asyncio.timeout(LAST_BATCHES_S):
                await in_thread("last traces", self._write_all)
        except TimeoutError:
            pass
        except Exception:
            _log.exception("the last traces are lost")
        self._writer.close()

    def _write_all(self) -> None:
        with self._writing:
            while not self._is_closing:
                self._wake.wait(BATCH_EVERY_S)
                self._wake.clear()
                self._write_waiting()
            self._write_waiting()

    def _write_waiting(self) -> None:
        """All that wait now, batch after batch."""
        for _ in range(-(-len(self._waiting) // MAX_BATCH_SPANS)):
            num_spans = min(MAX_BATCH_SPANS, len(self._waiting))
            self._write([self._waiting.popleft() for _ in range(num_spans)])

    def _write(self, batch: Sequence[FinishedSpan]) -> None:
        try:
            self._writer.write(batch)
        except CollectorAway as error:
            self._lost(len(batch), str(error))
        except BaseException:
            self._counts.dropped.inc(len(batch))
            raise
        else:
            self._taken(len(batch))

    def _lost(self, num_spans: int, why: str) -> None:
        self._counts.dropped.inc(num_spans)
        self._num_lost += num_spans
        if not self._is_away:
            self._is_away = True
            _log.warning("traces are not taken by the collector, and are lost", reason=why)

    def _taken(self, num_spans: int) -> None:
        self._counts.exported.inc(num_spans)
        if self._is_away:
            self._is_away = False
            _log.info("traces are taken by the collector again", num_lost_spans=self._num_lost)
            self._num_lost = 0
