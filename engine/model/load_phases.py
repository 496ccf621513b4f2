"""How a long load says how far it is, phase by phase."""

from __future__ import annotations

import time
from collections.abc import Callable

PhaseProgress = Callable[[str, float], None]
"""(phase, fraction done), many times; fractions count within their phase."""


def silent(phase: str, fraction: float) -> None:
    """For a load that nobody watches."""


class PhaseTimer:
    """A PhaseProgress that passes on, and remembers how long each phase took."""

    def __init__(self, progress: PhaseProgress) -> None:
        self._progress = progress
        self._durations_ms: dict[str, float] = {}
        self._phase: str | None = None
        self._since_s = time.monotonic()

    def __call__(self, phase: str, fraction: float) -> None:
        """A phase begins, goes on, or is done."""
        self._close(phase)
        self._progress(phase, fraction)

    def finish(self) -> dict[str, float]:
        """Milliseconds per phase, in order."""
        self._close(None)
        return self._durations_ms

    def _close(self, following: str | None) -> None:
        now_s = time.monotonic()
        if self._phase is not None:
            spent = self._durations_ms.get(self._phase, 0.0)
            self._durations_ms[self._phase] = spent + (now_s - self._since_s) * 1e3
        self._phase, self._since_s = following, now_s
