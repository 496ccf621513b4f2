"""What steps take, measured while they run: for our scheduler, and for the router's estimates.

The parts of a step's time (engine/step/planning/step_cost.py) are fitted.
"""

from __future__ import annotations

from engine.step.planning.step_cost import StepCost
from engine.step.prices.draft_price import DraftPrice
from engine.step.prices.two_term_fit import TwoTermFit
from engine.step.prices.verified_rows import VerifiedRows

_SURPRISE = 4.0
"""A step that took longer than so many times the expected counts as that: it lost its core."""
_SLOW_SHARE, _TAIL_STEP, _MAX_TAIL = 0.01, 0.1, 4.0


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
