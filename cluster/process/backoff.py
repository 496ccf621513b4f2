"""How long to wait before a dead process is started again."""

from __future__ import annotations

from dataclasses import dataclass

HEALTHY_AFTER_S = 60.0


@dataclass(slots=True)
class Backoff:
    """Doubles from `first_s` to `longest_s`; starts anew after a minute of health."""

    first_s: float = 0.5
    longest_s: float = 30.0
    _num_deaths: int = 0

    def next_delay_s(self, *, healthy_s: float) -> float:
        """Called at each death with how long the process had been ready."""
        if healthy_s >= HEALTHY_AFTER_S:
            self._num_deaths = 0
        delay_s = min(self.longest_s, self.first_s * 2.0 ** min(self._num_deaths, 60))
        self._num_deaths += 1
        return delay_s
