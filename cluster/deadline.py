"""The one time by which a request must be over, carried from the first byte to the last hop.

    front door: Deadline.after(timeout_s) when the first byte arrives
    on a wire:  remaining_ms of it, when the message is written; Deadline.after where it is read

A deadline is a moment on a monotonic clock of this process; it never travels itself.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from cluster.errors import DeadlineExceeded

MAX_TIMEOUT_S = 24 * 3600.0
"""The longest that a client may ask for, and what a worker is given where nobody asked."""

Clock = Callable[[], float]
"""Seconds that only grow, from an arbitrary start."""
Sleep = Callable[[float], Coroutine[Any, Any, None]]
"""Waits for so many seconds; cancelled with whoever waits."""


class Deadline(msgspec.Struct, frozen=True):
    """Made once, passed on as it is; nobody adds to it."""

    at_s: float
    """On `clock`; infinity for no deadline."""
    clock: Clock = time.monotonic

    @classmethod
    def after(cls, timeout_s: float, clock: Clock = time.monotonic) -> Deadline:
        """`timeout_s` from now. Raises ValueError for NaN."""
        if math.isnan(timeout_s):
            raise ValueError("a deadline of NaN seconds would never pass")
        return cls(clock() + timeout_s, clock)

    @classmethod
    def never(cls) -> Deadline:
        """For what is bounded otherwise."""
        return cls(math.inf)

    @property
    def remaining_s(self) -> float:
        """0 once it has passed."""
        return max(0.0, self.at_s - self.clock())

    @property
    def remaining_ms(self) -> float:
        """For a wire."""
        return self.remaining_s * 1e3

    @property
    def has_passed(self) -> bool:
        """True from the moment itself on."""
        return self.clock() >= self.at_s

    def sooner_of(self, timeout_s: float) -> Deadline:
        """This one, or `timeout_s` from now where that comes first."""
        return Deadline(min(self.at_s, self.clock() + timeout_s), self.clock)

    def bound(self) -> asyncio.Timeout:
        """`async with deadline.bound():` raises TimeoutError once it passes."""
        return asyncio.timeout(None if math.isinf(self.at_s) else self.remaining_s)


def end_now(limit: asyncio.Timeout) -> None:
    """Its block is left in one of the next turns of the loop, as if its time were over."""
    limit.reschedule(-math.inf)


def deadline_passed(asked_s: float | None) -> DeadlineExceeded:
    """`asked_s` is the limit that the client named; None: it named none."""
    if asked_s is None:
        return DeadlineExceeded("the time that was left of the request has passed")
    return DeadlineExceeded(
        f"the request's deadline of {asked_s:.1f} s passed; allow more time or ask for fewer tokens"
    )
