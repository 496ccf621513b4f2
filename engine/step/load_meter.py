"""Moving averages of what steps cost: what the router's estimates are made from."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from engine.step.plan import Chunk
from engine.step.step_cost import StepCostMeter, pairs_of

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
        self.costs = StepCostMeter()
        self.num_preemptions = 0
        self._gaps_s: deque[float] = deque(maxlen=_NUM_GAPS)
        self._began_s = 0.0
        self._work_left_since_s: float | None = None

    def begin(self, now_s: float) -> None:
        """A step begins; a gap counts when the last step left work behind."""
        self._began_s = now_s
        if self._work_left_since_s is not None:
            self._gaps_s.append(now_s - self._work_left_since_s)

    def end(
        self, now_s: float, *, has_work: bool, chunks: Sequence[Chunk], num_decodes: int
    ) -> None:
        """It ends. Of a mixed step, what its decodes take by themselves is not the chunks'."""
        duration_s = now_s - self._began_s
        num_tokens = sum(chunk.num_tokens for chunk in chunks)
        if chunks:
            decodes_s = self.costs.cost.decodes_ms(num_decodes) / 1e3 if num_decodes else 0.0
            self.prefill.add(num_tokens, max(duration_s - decodes_s, 0.0))
        elif num_decodes:
            self.decode.add(num_decodes, duration_s)
        self.costs.add(
            duration_s * 1e3,
            num_rows=num_decodes,
            num_tokens=num_tokens,
            num_pairs=sum(pairs_of(chunk.num_tokens, chunk.context) for chunk in chunks),
        )
        self._work_left_since_s = now_s if has_work else None

    @property
    def step_gap_p99_ms(self) -> float:
        """Idle time between steps while there was work, of the last 512 such gaps."""
        gaps = sorted(self._gaps_s)
        return gaps[int(0.99 * (len(gaps) - 1))] * 1e3 if gaps else 0.0
