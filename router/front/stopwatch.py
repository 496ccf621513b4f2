"""Times of a request that was ended here, by stop strings, before its workers could sum it up."""

from __future__ import annotations

import time

from cluster.generation import Timing


class Stopwatch:
    """Marks arrivals of tokens; what only workers know stays zero in its Timing."""

    def __init__(self, arrived_s: float) -> None:
        self._arrived_s = arrived_s
        self._first_s: float | None = None
        self._last_s = arrived_s
        self._num_later_tokens = 0

    def mark(self, num_tokens: int) -> None:
        """`num_tokens` arrived now."""
        self._last_s = time.monotonic()
        if self._first_s is None:
            self._first_s = self._last_s
        else:
            self._num_later_tokens += num_tokens

    def timing(self) -> Timing:
        """Time to first token and mean time between tokens, in milliseconds."""
        if self._first_s is None:
            return Timing()
        span_ms = (self._last_s - self._first_s) * 1000
        return Timing(
            ttft_ms=(self._first_s - self._arrived_s) * 1000,
            itl_ms=span_ms / self._num_later_tokens if self._num_later_tokens else 0.0,
        )
