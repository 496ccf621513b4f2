"""When steps begin and end: how fast prompts and answers are computed, and what steps cost.

Rates are moving averages, for who is told of this engine's load; what steps cost is fitted
(engine/step/prices/step_costs.py), for its own plans as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from cluster.deadline import Clock
from cluster.generation import pairs_of
from engine.step.planning.plan import Chunk, HomeShare
from engine.step.prices.draft_price import DraftPrice
from engine.step.prices.step_costs import StepCostMeter
from engine.step.prices.verified_rows import VerifiedRows

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
    """Told by the engine when steps begin and end, in seconds of its clock.

    `core_clock` counts what the process has computed, in seconds of its cores: a step that waited
    for a core took longer than that. None: a step counts as long as it took.
    """

    def __init__(
        self, core_clock: Clock | None = None, draft_price: DraftPrice | None = None
    ) -> None:
        """`draft_price`: see StepCostMeter."""
        self._core_clock = core_clock
        self.prefill = MovingAverage()
        self.decode = MovingAverage()
        self.costs = StepCostMeter(draft_price)
        self.num_preemptions = 0
        self.prefill_busy_s = self.decode_busy_s = 0.0
        """Of all steps: what they took for prompts, and for answers."""
        self.num_prefilled_tokens = self.num_decoded_tokens = 0
        self._gaps_s: deque[float] = deque(maxlen=_NUM_GAPS)
        self._began_s = self._core_began_s = 0.0
        self._guess_s = 0.0
        """Of this step, what guessing coming tokens took: no part of its cost."""
        self._work_left_since_s: float | None = None

    def begin(self, now_s: float) -> None:
        """A step begins; a gap counts when the last step left work behind."""
        self._began_s = now_s
        self._guess_s = 0.0
        if self._core_clock is not None:
            self._core_began_s = self._core_clock()
        if self._work_left_since_s is not None:
            self._gaps_s.append(now_s - self._work_left_since_s)

    def guessed(self, took_s: float) -> None:
        """A model has guessed for so long in this step."""
        self._guess_s += took_s

    def end(
        self,
        now_s: float,
        *,
        has_work: bool,
        chunks: Sequence[Chunk],
        num_decodes: int,
        slowest: HomeShare | None = None,
    ) -> None:
        """It ends. Of a mixed step, what its decodes take by themselves is not the chunks'.

        `slowest`: of several homes that compute side by side, the one that took so long; None:
        there is one, which computed all.
        """
        duration_s = now_s - self._began_s
        slowest = slowest or HomeShare(num_decodes, tuple(chunks))
        rows = slowest.num_decodes
        if chunks:
            decodes_s = self.costs.cost.decodes_ms(rows) / 1e3 if rows else 0.0
            num_tokens = sum(chunk.num_tokens for chunk in chunks)
            prefill_s = max(duration_s - decodes_s, 0.0)
            self.prefill.add(num_tokens, prefill_s)
            self._count(prefill_s, duration_s - prefill_s, num_tokens, num_decodes)
        elif num_decodes:
            self.decode.add(num_decodes, duration_s)
            self._count(0.0, duration_s, 0, num_decodes)
        self.costs.add(
            max(0.0, duration_s - self._guess_s) * 1e3,
            num_rows=rows,
            num_tokens=sum(chunk.num_tokens for chunk in slowest.chunks),
            num_pairs=sum(pairs_of(chunk.num_tokens, chunk.context) for chunk in slowest.chunks),
            undisturbed_ms=None if self._guess_s else self._undisturbed_s(duration_s) * 1e3,
        )
        self._work_left_since_s = now_s if has_work else None

    def end_drafted(self, now_s: float, *, has_work: bool, verified: VerifiedRows) -> float:
        """It ends, a step of decodes with drafts. It counts as so many steps of one token for each
        sequence as it gave tokens. Returns the ms that their rows took: see add_drafts."""
        duration_s = now_s - self._began_s
        num_steps = max(1.0, verified.num_tokens / verified.num_decodes)
        self.decode.add(verified.num_decodes, duration_s / num_steps)
        self._count(0.0, duration_s, 0, verified.num_tokens)
        self._work_left_since_s = now_s if has_work else None
        return self.costs.add_drafts(max(0.0, duration_s - self._guess_s) * 1e3, verified)

    def _count(
        self, prefill_s: float, decode_s: float, num_prefilled: int, num_decoded: int
    ) -> None:
        self.prefill_busy_s += prefill_s
        self.decode_busy_s += decode_s
        self.num_prefilled_tokens += num_prefilled
        self.num_decoded_tokens += num_decoded

    def _undisturbed_s(self, duration_s: float) -> float:
        if self._core_clock is None:
            return duration_s
        return min(duration_s, self._core_clock() - self._core_began_s)

    @property
    def step_gap_p99_ms(self) -> float:
        """Idle time between steps while there was work, of the last 512 such gaps."""
        gaps = sorted(self._gaps_s)
        return gaps[int(0.99 * (len(gaps) - 1))] * 1e3 if gaps else 0.0
