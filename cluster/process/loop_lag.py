"""How late this process's event loop is, and what held it.

    a tick is due every 10 ms -> it comes late by the time something held the loop
    over 0.25 s late: a thread beside the loop notes its stack -> one warning, when it goes on

The measure sees whatever keeps the loop from its work: a long call, the interpreter's lock held by
another thread, a stopped or swapped-out process. It reads short by at most one interval.
"""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry, Gauge, Histogram

from cluster.deadline import Clock
from cluster.logs import get_logger
from cluster.process.stall_watch import StallWatch

INTERVAL_S = 0.01
"""A tick takes 6 us: 0.06 % of a core."""
WINDOW_S = 5.0
STALL_S = 0.25
"""A tick that comes so late is worth a line in the log."""
DEAD_S = 20.0
"""A loop that stood so long is given up by whoever asks whether it lives."""
_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_log = get_logger("loop")


class LoopLag:
    """One per process: `publish`, `start`, at the end `close`. All calls from the loop's thread."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._due_s: float | None = None
        """When the next tick should come; None before `start` and after `close`."""
        self._windows = _Windows(clock())
        self._histogram: Histogram | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watch: StallWatch | None = None

    @property
    def recent_s(self) -> float:
        """The longest lateness of the last five to ten seconds, one that lasts now included.

        Whoever judges another's silence by a clock subtracts this first: what has arrived here may
        only not have been read yet.
        """
        return max(self._windows.longest_s(self._clock()), self.overdue_s)

    @property
    def overdue_s(self) -> float:
        """How long the next tick has been due; from any thread."""
        due_s = self._due_s
        return 0.0 if due_s is None else max(0.0, self._clock() - due_s)

    def why_it_stands(self) -> str | None:
        """For a probe of life: None while the loop goes on; from any thread."""
        late_s = self.overdue_s
        return f"the event loop has stood still for {late_s:.0f} s" if late_s > DEAD_S else None

    def publish(self, registry: CollectorRegistry) -> None:
        """`splitserve_loop_lag_seconds`, every tick; and the longest of the last seconds."""
        self._histogram = Histogram(
            "splitserve_loop_lag_seconds",
            "How late the event loop's ticks of 10 ms came",
            buckets=_BUCKETS_S,
            registry=registry,
        )
        longest = Gauge(
            "splitserve_loop_lag_max_seconds",
            "The longest of the last five to ten seconds",
            registry=registry,
        )
        longest.set_function(lambda: self.recent_s)

    def start(self) -> None:
        """Ticks from now on."""
        self._watch = StallWatch(lambda: self.overdue_s, STALL_S)
        self._schedule()

    async def close(self) -> None:
        """Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = None
        if self._watch is not None:
            await self._watch.close()

    def _schedule(self) -> None:
        self._due_s = self._clock() + INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._tick)

    def _tick(self) -> None:
        late_s = self.overdue_s
        self._schedule()
        self._windows.add(late_s, self._clock())
        if self._histogram is not None:
            self._histogram.observe(late_s)
        if late_s > STALL_S and self._watch is not None:
            _log.warning("the event loop was held", late_s=late_s, held_by=self._watch.take_stack())


class _Windows:
    """The longest of this window and of the one before."""

    def __init__(self, now_s: float) -> None:
        self._ends_s = now_s + WINDOW_S
        self._now_s = 0.0
        self._before_s = 0.0

    def add(self, late_s: float, now_s: float) -> None:
        self._move_to(now_s)
        self._now_s = max(self._now_s, late_s)

    def longest_s(self, now_s: float) -> float:
        self._move_to(now_s)
        return max(self._now_s, self._before_s)

    def _move_to(self, now_s: float) -> None:
        if now_s < self._ends_s:
            return
        is_next = now_s < self._ends_s + WINDOW_S
        self._before_s, self._now_s = (self._now_s if is_next else 0.0), 0.0
        self._ends_s = now_s + WINDOW_S
