"""How long to wait before what has failed is tried again."""

from __future__ import annotations

from dataclasses import dataclass

HEALTHY_AFTER_S = 60.0


@dataclass(slots=True)
class Backoff:
    """Doubles from `first_s` to `longest_s`; starts anew after a minute of health."""

    first_s: float = 0.5
    longest_s: float = 30.0
    _num_failures: int = 0

    def next_delay_s(self, *, healthy_s: float) -> float:
        """Called at each failure with how long it had been well before."""
        if healthy_s >= HEALTHY_AFTER_S:
            self.start_anew()
        delay_s = min(self.longest_s, self.first_s * 2.0 ** min(self._num_failures, 60))
        self._num_failures += 1
        return delay_s

    def start_anew(self) -> None:
        """For callers who know of health sooner: the next delay is the first one."""
        self._num_failures = 0
