"""Whether a rank's one thread waits in a collective: asked by another thread, which tells of it.

A wait counts that is long; and one that has come, or has ended, since the last look: a step of many
short ones, with hardly any work between them, shows neither work nor a long wait to who looks at it
now and then.
"""

from __future__ import annotations

import time
from typing import Protocol

from cluster.deadline import Clock

LEAST_CALL_LIMIT_S = 30.0
"""Of one collective: what ranks that load, or join, need is no step."""
LONG_S = 0.4
"""Nobody needs to hear of a single shorter wait: less than between two beats of an engine."""


def call_limit_s(step_timeout_s: float) -> float:
    """Of one collective, for ranks that the watch thinks alive. One that has nothing to compute may
    wait in a single call for as long as another's step lasts, which `step_timeout_s` bounds."""
    return max(LEAST_CALL_LIMIT_S, step_timeout_s)


class Calls(Protocol):
    """As much of a collective as says that it waits."""

    @property
    def waited_s(self) -> float:
        """See GroupCollective."""

    @property
    def in_call_since_s(self) -> float | None:
        """See GroupCollective."""


class CallWait:
    """Of one collective, asked by one thread."""

    def __init__(self, calls: Calls, *, limit_s: float, clock: Clock = time.monotonic) -> None:
        """`limit_s`: of each call."""
        self._calls, self._limit_s, self._clock = calls, limit_s, clock
        self._since_s, self._waited_s = calls.in_call_since_s, calls.waited_s

    def __call__(self) -> bool:
        """Neither of a thread that calls nothing, nor of a wait that should have ended with its
        limit."""
        since_s, waited_s = self._calls.in_call_since_s, self._calls.waited_s
        is_new = since_s is not None and since_s != self._since_s
        has_waited = waited_s != self._waited_s
        self._since_s, self._waited_s = since_s, waited_s
        return is_new or has_waited or self._is_long(since_s)

    def _is_long(self, since_s: float | None) -> bool:
        return since_s is not None and LONG_S <= self._clock() - since_s <= self._limit_s
