"""Times to first token and between tokens over the last five minutes.

Histograms only grow; what lies between two looks at one is what was observed meanwhile. Looked at
every five seconds whether anybody watches or not, so that who opens the page sees what was: two
copies of some 15 numbers.
"""

from __future__ import annotations

from collections import deque

from cluster.deadline import Sleep
from router.page.snapshot import Series
from router.telemetry.quick_histogram import Buckets, quantile_ms

STEP_S = 5.0
NUM_STEPS = 60
_SHARES = (0.5, 0.95)
_Quantiles = tuple[float | None, ...]


class History:
    """Of two histograms of seconds."""

    def __init__(self, ttft: Buckets, inter_token: Buckets) -> None:
        self._ttft, self._itl = _Recent(ttft), _Recent(inter_token)

    async def keep(self, sleep: Sleep) -> None:
        """Looks every STEP_S, until it is cancelled."""
        while True:
            await sleep(STEP_S)
            self.look()

    def look(self) -> None:
        """A step is over."""
        self._ttft.look()
        self._itl.look()

    def series(self) -> Series:
        """NUM_STEPS values of each, the last step's last."""
        ttft_p50, ttft_p95 = self._ttft.columns()
        itl_p50, itl_p95 = self._itl.columns()
        return Series(STEP_S, ttft_p50, ttft_p95, itl_p50, itl_p95)


class _Recent:
    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._seen = buckets.counts()
        self._steps = deque[_Quantiles]([(None,) * len(_SHARES)] * NUM_STEPS, maxlen=NUM_STEPS)

    def look(self) -> None:
        before, self._seen = self._seen, self._buckets.counts()
        new = [now - then for now, then in zip(self._seen, before, strict=True)]
        bounds = self._buckets.bounds
        self._steps.append(tuple(quantile_ms(bounds, new, share) for share in _SHARES))

    def columns(self) -> list[list[float | None]]:
        return [list(column) for column in zip(*self._steps, strict=True)]
