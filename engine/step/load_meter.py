"""Moving averages of what steps cost: what the router's estimates are made from."""

from __future__ import annotations

from collections import deque

_WEIGHT = 0.1
_NUM_GAPS = 512


class MovingAverage:
    """Exponential, of (amount, duration) pairs; the first pair sets it."""

    def __init__(self) -> None:
        self._amount = 0.0
        self._duration_s = 0.0

    def add(self, amount: float, duration_s: float) -> None:
        """One observation."""
        weight = _WEIGHT if self._duration_s else 1.0
        self._amount += weight * (amount - self._amount)
        self._duration_s += weight * (duration_s - self._duration_s)

    @property
    def per_s(self) -> float:
        """Amount per second; 0 before the first observation."""
        return self._amount / self._duration_s if self._duration_s else 0.0

    @property
    def mean_ms(self) -> float:
        """Mean duration of an observation; 0 before the first."""
        return self._duration_s * 1e3


class LoadMeter:
    """Told by the engine when steps begin and end, in seconds of its clock."""

    def __init__(self) -> None:
        self.prefill = MovingAverage()
        self.decode = MovingAverage()
        self.num_preemptions = 0
        self._gaps_s: deque[float] = deque(maxlen=_NUM_GAPS)
        self._began_s = 0.0
        self._work_left_since_s: float | None = None

    def begin(self, now_s: float) -> None:
        """A step begins; a gap counts when the last step left work behind."""
        self._began_s = now_s
        if self._work_left_since_s is not None:
            self._gaps_s.append(now_s - self._work_left_since_s)

    def end(self, now_s: float, *, has_work: bool, num_chunk_tokens: int, num_decodes: int) -> None:
        """It ends. Mixed steps count as prefill only: they say little about decoding alone."""
        duration_s = now_s - self._began_s
        if num_chunk_tokens:
            self.prefill.add(num_chunk_tokens, duration_s)
        elif num_decodes:
            self.decode.add(num_decodes, duration_s)
        self._work_left_since_s = now_s if has_work else None

    @property
    def step_gap_p99_ms(self) -> float:
        """Idle time between steps while there was work, of the last 512 such gaps."""
        gaps = sorted(self._gaps_s)
        return gaps[int(0.99 * (len(gaps) - 1))] * 1e3 if gaps else 0.0
