"""What the last seconds were like: what is counted since the start, less what it was then."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.deadline import Clock, Sleep
from router.telemetry.metrics import RouterMetrics
from router.telemetry.quick_histogram import Buckets, quantile_ms

WINDOW_S = 10
MARK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Counted:
    """Since the start, at one moment."""

    at_s: float
    numbers: Mapping[str, float]
    times: Mapping[str, tuple[int, ...]]
    """By stage: see Buckets.counts."""


@dataclass(frozen=True, slots=True)
class StageQuantiles:
    """Of the observations of a window, in milliseconds."""

    count: int
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class LastSeconds:
    """`numbers` by name, as of RouterMetrics."""

    window_s: float
    numbers: Mapping[str, int]
    stages: Mapping[str, StageQuantiles]


class Lately:
    """Of one router. `run` belongs to it. From the event loop only."""

    def __init__(self, metrics: RouterMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._series: dict[str, Buckets] = {"ttft": metrics.ttft, **metrics.stages}
        self._series["itl"] = metrics.inter_token
        self._marks = deque([self._counted()], maxlen=WINDOW_S + 1)

    async def run(self, sleep: Sleep) -> None:
        """Never returns."""
        while True:
            await sleep(MARK_EVERY_S)
            self.mark()

    def mark(self) -> None:
        """A second has passed."""
        self._marks.append(self._counted())

    def now(self) -> LastSeconds:
        """Of WINDOW_S, or as long as there has been."""
        new = self._counted()
        old = next(m for m in self._marks if m is self._marks[-1] or self._is_within(m, new))
        numbers = {name: int(value - old.numbers[name]) for name, value in new.numbers.items()}
        stages = {
            name: quantiles_of(
                self._series[name].bounds,
                [after - before for after, before in zip(counts, old.times[name], strict=True)],
            )
            for name, counts in new.times.items()
        }
        return LastSeconds(new.at_s - old.at_s, numbers, stages)

    def _is_within(self, mark: Counted, now: Counted) -> bool:
        return now.at_s - mark.at_s <= WINDOW_S + MARK_EVERY_S / 2

    def _counted(self) -> Counted:
        metrics = self._metrics
        numbers = {
            "num_refused": metrics.classes.num_refused,
            "prompt_tokens": metrics.prompt_tokens.value,
            "cached_tokens": metrics.cached_tokens.value,
            "completion_tokens": metrics.completion_tokens.value,
            "kv_bytes": metrics.kv_bytes.value,
        }
        times = {name: series.counts() for name, series in self._series.items()}
        return Counted(self._clock(), numbers, times)


def quantiles_of(bounds_s: Sequence[float], counts: Sequence[int]) -> StageQuantiles:
    """Of observations in seconds, counted as Buckets do; 0 ms where there are none."""
    p50_ms, p95_ms = (quantile_ms(bounds_s, counts, share) or 0.0 for share in (0.5, 0.95))
    return StageQuantiles(sum(counts), p50_ms, p95_ms)
