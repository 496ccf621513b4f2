"""What steps cost, measured while they run: for our scheduler, and for the router's estimates.

Rates are moving averages; the parts of a step's time (engine/step/planning/step_cost.py) are
fitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from cluster.deadline import Clock
from cluster.generation import pairs_of
from engine.step.meters.draft_price import DraftPrice
from engine.step.meters.verified_drafts import VerifiedRows
from engine.step.planning.plan import Chunk, HomeShare
from engine.step.planning.step_cost import StepCost

_WEIGHT = 0.1
_NUM_GAPS = 512
_DECAY = 0.98
"""Of a sample's weight with each newer one: the last fifty steps count."""
_SURPRISE = 4.0
"""A step that took longer than so many times the expected counts as that: it lost its core."""
_LEAN = 0.01
"""How far the second term of a fit leans to zero: what cannot be told apart goes to the first."""
_SLOW_SHARE, _TAIL_STEP, _MAX_TAIL = 0.01, 0.1, 4.0
_DIFFERENT = 0.02
"""Of the squared cosine between the terms: a batch that varied by some 15 percent."""


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


class TwoTermFit:
    """Least squares of y = a * u + b * v, with a and b at least 0; older samples fade."""

    __slots__ = ("_uu", "_uv", "_uy", "_vv", "_vy", "a", "b")

    def __init__(self) -> None:
        self._uu = self._uv = self._vv = self._uy = self._vy = 0.0
        self.a = self.b = 0.0

    def add(self, u: float, v: float, y: float) -> None:
        """One sample; `a` and `b` are new afterwards."""
        self._uu = _DECAY * self._uu + u * u
        self._uv = _DECAY * self._uv + u * v
        self._vv = _DECAY * self._vv + v * v
        self._uy = _DECAY * self._uy + u * y
        self._vy = _DECAY * self._vy + v * y
        self.a, self.b = self._solve()

    @property
    def tells_apart(self) -> bool:
        """True when the samples differ enough to tell the second term from the first."""
        both = self._uu * self._vv
        return both > 0 and 1 - self._uv * self._uv / both > _DIFFERENT

    def of(self, u: float, v: float) -> float:
        """The fitted y; 0 before the first sample."""
        return self.a * u + self.b * v

    def _solve(self) -> tuple[float, float]:
        vv = self._vv * (1 + _LEAN)
        determinant = self._uu * vv - self._uv * self._uv
        if determinant <= 0 or not vv:
            return self._uy / self._uu, 0.0
        a = (self._uy * vv - self._vy * self._uv) / determinant
        b = (self._vy * self._uu - self._uy * self._uv) / determinant
        if b < 0:
            return self._uy / self._uu, 0.0
        return (a, b) if a >= 0 else (0.0, self._vy / self._vv)


class StepFits:
    """What steps of decodes take, and what chunks add to them.

    Chunks are fitted per token, so that a short one counts as much as a long one: beside decodes
    the short ones matter.
    """

    __slots__ = ("chunks", "decodes")

    def __init__(self) -> None:
        self.decodes = TwoTermFit()
        self.chunks = TwoTermFit()

    def decodes_ms(self, num_rows: int) -> float:
        """A step that only decodes so many sequences; 0 for none."""
        return self.decodes.of(1, num_rows) if num_rows else 0.0

    def add(self, took_ms: float, *, num_rows: int, num_tokens: int, num_pairs: float) -> None:
        """One step."""
        if num_tokens:
            token_ms = max(0.0, took_ms - self.decodes_ms(num_rows)) / num_tokens
            _take(self.chunks, 1, num_pairs / num_tokens, token_ms)
        elif num_rows:
            _take(self.decodes, 1, num_rows, took_ms)


class StepCostMeter:
    """Told of every step by the engine; asked before every step by the planner."""

    def __init__(self, draft_price: DraftPrice | None = None) -> None:
        """`draft_price`: of an engine that guesses coming tokens."""
        self._taken = StepFits()
        self._undisturbed = StepFits()
        self._draft_price = draft_price
        self._tail = 1.0

    @property
    def cost(self) -> StepCost:
        """As measured so far."""
        decodes, chunks = self._taken.decodes, self._taken.chunks
        return StepCost(
            base_ms=decodes.a,
            row_ms=decodes.b,
            token_ms=chunks.a,
            pair_ms=chunks.b,
            tail=self._tail,
            draft_row_ms=0.0 if self._draft_price is None else self._draft_price.ms,
            draft_base_ms=0.0 if self._draft_price is None else self._draft_price.base_ms,
        )

    @property
    def told_row_ms(self) -> float:
        """`cost.row_ms`, once steps of different batches tell; 0 before."""
        decodes = self._taken.decodes
        return decodes.b if decodes.tells_apart else 0.0

    @property
    def told_chunk_ms(self) -> tuple[float, float]:
        """`token_ms` and `pair_ms` of undisturbed steps, once prompts of different lengths tell.

        Zeros before: short prompts alone say nothing of what attention makes of long ones. What
        neighbours took from our steps is left out: they may take it from another worker next.
        """
        chunks = self._undisturbed.chunks
        return (chunks.a, chunks.b) if chunks.tells_apart else (0.0, 0.0)

    def add(
        self,
        took_ms: float,
        *,
        num_rows: int,
        num_tokens: int,
        num_pairs: float,
        undisturbed_ms: float | None = None,
    ) -> None:
        """A step of `num_rows` decodes and chunks of `num_tokens` in all; see `pairs_of`.

        `undisturbed_ms`: what it would have taken on cores of its own; None: as long.
        """
        if num_rows and not num_tokens:
            self._note_tail(took_ms, self._taken.decodes_ms(num_rows))
        alone_ms = took_ms if undisturbed_ms is None else undisturbed_ms
        for fits, ms in ((self._taken, took_ms), (self._undisturbed, alone_ms)):
            fits.add(ms, num_rows=num_rows, num_tokens=num_tokens, num_pairs=num_pairs)
        if self._draft_price is not None and num_rows and not num_tokens:
            decodes_ms = self._taken.decodes_ms
            self._draft_price.note_plain(num_rows, decodes_ms(num_rows), decodes_ms(1))

    def add_drafts(self, took_ms: float, verified: VerifiedRows) -> float:
        """A step of decodes with drafts: what it took longer is their rows'. Returns that; below 0
        where it took less than a plain step is expected to."""
        assert self._draft_price is not None, "who verifies drafts has a price for them"
        added_ms = took_ms - self._taken.decodes_ms(verified.num_decodes)
        self._draft_price.add(verified.weight, max(0.0, added_ms))
        return added_ms

    def _note_tail(self, took_ms: float, expected_ms: float) -> None:
        is_slow = took_ms > self._tail * expected_ms > 0
        self._tail += _TAIL_STEP * (is_slow - _SLOW_SHARE)
        self._tail = min(_MAX_TAIL, max(1.0, self._tail))


def _take(fit: TwoTermFit, u: float, v: float, took_ms: float) -> None:
    expected_ms = fit.of(u, v)
    fit.add(u, v, min(took_ms, _SURPRISE * expected_ms) if expected_ms else took_ms)


class LoadMeter:
    """Told by the engine when steps begin and end, in seconds of its clock.

    `core_clock` counts what the process has computed, in seconds of its cores: a step that waited
    for a core took longer than that. None: a step counts as long as it took. `price`: of drafts.
    """

    def __init__(self, core_clock: Clock | None = None, price: DraftPrice | None = None) -> None:
        self._core_clock = core_clock
        self.prefill = MovingAverage()
        self.decode = MovingAverage()
        self.costs = StepCostMeter(price)
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
