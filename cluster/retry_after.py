"""How long somebody who is refused is told to wait, over HTTP and gRPC alike."""

from __future__ import annotations

from collections.abc import Callable

from cluster.errors import NotReady, SplitserveError

DEFAULT_RETRY_AFTER_S = 1.0
"""Where an error that waiting helps names no wait of its own."""
JITTER_SHARE = 0.5
"""Of the wait, at most, on top of it."""
Draw = Callable[[], float]
"""A number in [0, 1)."""


def no_jitter() -> float:
    """The Draw of our own processes, which decide by themselves when to come again."""
    return 0.0


def retry_after_s(error: SplitserveError, draw: Draw) -> float | None:
    """Seconds; None where waiting does not help.

    A little longer for some than for others, by what is drawn: who was refused together does not
    come back together.
    """
    if not isinstance(error, NotReady):
        return None
    wait_s = DEFAULT_RETRY_AFTER_S if error.retry_after_s is None else error.retry_after_s
    return wait_s * (1 + JITTER_SHARE * draw())
