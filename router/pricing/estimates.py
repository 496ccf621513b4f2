"""What the router has measured: how fast workers prefill, what a handoff costs, what links carry.

One line, `base + tokens * slope`, is fitted to the whole fleet's finished prefills (equal weights
on mostly equal machines), and one factor per worker says how much slower or faster it is. Until
something is measured, stated defaults hold; handoffs and links fall back to them when the last
measurement is a minute old, so that a bad minute is not believed for ever.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable

from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from router.pricing.route import PrefillSpeed

DEFAULT_TOKENS_PER_S = 2000.0
"""Measured on two CPU cores with 135M parameters: 512 tokens in 224 ms."""
DEFAULT_BASE_MS = 5.0
DEFAULT_DECODE_STEP_MS = 20.0
"""The same machine: 18 to 22 ms for one sequence."""
DEFAULT_KV_BYTES_PER_S = 1e9
"""The careful end: NIXL over shared memory was measured at 3.5 to 8 GB/s."""
DEFAULT_HANDOFF_MS = 5.0
BELIEVED_S = 60.0
MIN_HANDOFFS = 3
MAX_SAMPLES = 32
_PRIOR_TOKENS = (16, 512)
_PRIOR_WEIGHT = 0.25
_DECAY = 0.9
"""Of a sample's weight with each newer one: some ten samples count."""
MIN_FACTOR_SAMPLES = 8
"""A cold first prefill says nothing of a worker."""
_FACTOR_STEP = 0.2
_FACTOR_RANGE = (0.25, 4.0)


class PrefillModel:
    """A weighted least-squares line through (tokens, milliseconds), and factors per worker."""

    def __init__(self) -> None:
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        """Of weights, tokens, milliseconds, tokens squared, tokens times milliseconds."""
        self._factors: dict[WorkerKey, tuple[int, float]] = {}
        """Number of samples, and how much slower than the line."""
        self._prior_tokens_per_s = DEFAULT_TOKENS_PER_S
        """What the line leans on while samples are few."""
        self._line = self._fit()

    def heard(self, tokens_per_s: float) -> None:
        """A beat's rate. Only one above the default is news: a low one may come from prompts so
        short, or so well cached, that it measured the fixed cost of a step."""
        if tokens_per_s > self._prior_tokens_per_s:
            self._prior_tokens_per_s = tokens_per_s
            self._line = self._fit()

    def add(self, worker: WorkerKey, num_tokens: int, took_ms: float) -> None:
        """A finished prefill of so many uncached tokens."""
        if num_tokens < 1 or took_ms <= 0:
            return
        decayed = tuple(value * _DECAY for value in self._sums)
        self._sums = _plus(decayed, num_tokens, took_ms, 1.0)
        self._line = self._fit()
        ratio = _clamp(took_ms / self._line.of(num_tokens))
        num_samples, factor = self._factors.get(worker, (0, 1.0))
        self._factors[worker] = (num_samples + 1, factor + _FACTOR_STEP * (ratio - factor))

    def speed_of(self, worker: WorkerKey) -> PrefillSpeed:
        """The line, scaled to one worker once enough is known of it."""
        line = self._line
        num_samples, factor = self._factors.get(worker, (0, 1.0))
        if num_samples < MIN_FACTOR_SAMPLES:
            return line
        return PrefillSpeed(line.base_ms * factor, line.ms_per_token * factor)

    def forget(self, worker: WorkerKey) -> None:
        """The worker is gone."""
        self._factors.pop(worker, None)

    def _fit(self) -> PrefillSpeed:
        prior_ms = 1000 / self._prior_tokens_per_s
        sums = self._sums
        for tokens in _PRIOR_TOKENS:
            sums = _plus(sums, tokens, DEFAULT_BASE_MS + tokens * prior_ms, _PRIOR_WEIGHT)
        weight, x, y, xx, xy = sums
        slope = (weight * xy - x * y) / (weight * xx - x * x)
        slope = max(slope, prior_ms / 1000)
        base = (y - slope * x) / weight
        return PrefillSpeed(base, slope) if base >= 0 else PrefillSpeed(0.0, xy / xx)


class RecentValues:
    """The last measurements, each believed for BELIEVED_S."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._values: deque[tuple[float, tuple[float, float]]] = deque(maxlen=MAX_SAMPLES)

    def add(self, value: float, weight: float = 1.0) -> None:
        """One measurement."""
        self._values.append((self._clock(), (value, weight)))

    def recent(self) -> list[tuple[float, float]]:
        """(value, weight) of those that are still believed."""
        oldest = self._clock() - BELIEVED_S
        return [pair for at_s, pair in self._values if at_s >= oldest]

    def median(self) -> float | None:
        """None while there are fewer than MIN_HANDOFFS."""
        values = [value for value, _ in self.recent()]
        return statistics.median(values) if len(values) >= MIN_HANDOFFS else None


class Estimates:
    """Fed by finished requests and beats; asked at every decision."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.prefill = PrefillModel()
        self._rest_pair = RecentValues(clock)
        self._rest_local = RecentValues(clock)
        self._links = RecentValues(clock)

    @property
    def handoff_ms(self) -> float:
        """What a pair takes beside compute and bytes, over what a local request takes."""
        pair = self._rest_pair.median()
        if pair is None:
            return DEFAULT_HANDOFF_MS
        return max(0.0, pair - (self._rest_local.median() or 0.0))

    @property
    def kv_bytes_per_s(self) -> float | None:
        """All bytes of recent transfers by all their time, so that large ones count most."""
        recent = self._links.recent()
        took_s = sum(seconds for _, seconds in recent)
        return sum(num_bytes for num_bytes, _ in recent) / took_s if took_s else None

    def finished(
        self, usage: Usage, timing: Timing, *, decode: WorkerKey, prefill: WorkerKey | None
    ) -> None:
        """What a request that succeeded tells; `prefill` is the worker that computed, or None."""
        self.prefill.add(
            prefill or decode, usage.prompt_tokens - usage.cached_tokens, timing.prefill_ms
        )
        rest = self._rest_pair if prefill else self._rest_local
        rest.add(timing.kv_ms + timing.decode_ms)
        if timing.kv_bytes and timing.kv_transfer_ms > 0:
            self._links.add(timing.kv_bytes, timing.kv_transfer_ms / 1000)


def link_bytes_per_s(measured: float | None, beat_bytes_per_s: float) -> float:
    """For one reader: what the router measured, else its own word if that is above the default.

    A low word is not taken: it may come from transfers so small that it measured their latency.
    """
    return measured or max(beat_bytes_per_s, DEFAULT_KV_BYTES_PER_S)


def _plus(
    sums: tuple[float, ...], num_tokens: int, took_ms: float, weight: float
) -> tuple[float, float, float, float, float]:
    s, x, y, xx, xy = sums
    return (
        s + weight,
        x + weight * num_tokens,
        y + weight * took_ms,
        xx + weight * num_tokens * num_tokens,
        xy + weight * num_tokens * took_ms,
    )


def _clamp(factor: float) -> float:
    return min(_FACTOR_RANGE[1], max(_FACTOR_RANGE[0], factor))
