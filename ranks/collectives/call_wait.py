"""Whether a rank's one thread waits in a collective: asked by another thread, which tells of it."""

from __future__ import annotations

import time
from typing import Protocol

from cluster.deadline import Clock

CALL_DEADLINE_S = 30.0
"""Of one collective: for ranks that the watch thinks alive. They are at most a step apart."""
LONG_S = 0.4
"""Nobody needs to hear of a shorter wait: less than between two beats of an engine."""


class Calls(Protocol):
    """As much of a collective as says that it waits."""

    @property
    def in_call_since_s(self) -> float | None:
        """See GroupCollective."""


class CallWait:
    """Of one collective."""

    def __init__(self, calls: Calls, *, clock: Clock = time.monotonic) -> None:
        self._calls, self._clock = calls, clock

    def __call__(self) -> bool:
        """Neither of a short wait, nor of one that should have ended with its deadline."""
        since_s = self._calls.in_call_since_s
        return since_s is not None and LONG_S <= self._clock() - since_s <= CALL_DEADLINE_S
