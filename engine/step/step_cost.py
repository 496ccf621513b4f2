"""What a step takes, measured while steps run: milliseconds from rows, tokens and context.

    a step of decodes    base_ms + rows * row_ms
    each chunk adds      tokens * token_ms + tokens * context / 1024 * pair_ms

The second part of a chunk is attention: every token looks at all tokens before it. `StepCost` is
a frozen value, for the scheduler; `StepCostMeter` owns the fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_CONTEXT_UNIT = 1024
_DECAY = 0.98
"""Of a sample's weight with each newer one: the last fifty steps count."""
_SURPRISE = 4.0
"""A step that took longer than so many times the expected counts as that: it lost its core."""
_LEAN = 0.01
"""How far the second term of a fit leans to zero: what cannot be told apart goes to the first."""
_SLOW_SHARE, _TAIL_STEP, _MAX_TAIL = 0.05, 0.05, 3.0
_DIFFERENT = 0.02
"""Of the squared cosine between the terms: a batch that varied by some 15 percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Milliseconds of a step; zeros where nothing was measured."""

    base_ms: float = 0.0
    row_ms: float = 0.0
    token_ms: float = 0.0
    pair_ms: float = 0.0
    """Per token and 1024 tokens of context."""
    tail: float = 1.0
    """A slow step of decodes, the 95th of a hundred, over what it should take."""

    @property
    def knows_decodes(self) -> bool:
        """True once a step of decodes was measured."""
        return self.base_ms + self.row_ms > 0

    @property
    def knows_chunks(self) -> bool:
        """True once a chunk of a prompt was measured."""
        return self.token_ms + self.pair_ms > 0

    def decodes_ms(self, num_rows: int) -> float:
        """A step that only decodes so many sequences."""
        return self.base_ms + num_rows * self.row_ms

    def chunk_ms(self, num_tokens: int, context: int) -> float:
        """What a chunk adds, of a prompt with `context` tokens already computed."""
        return num_tokens * self.token_ms + pairs_of(num_tokens, context) * self.pair_ms

    def tokens_within(self, limit_ms: float, context: int) -> int:
        """The longest chunk that adds at most `limit_ms`."""
        if limit_ms <= 0:
            return 0
        square = self.pair_ms / (2 * _CONTEXT_UNIT)
        linear = self.token_ms + context * self.pair_ms / _CONTEXT_UNIT
        root = math.sqrt(linear * linear + 4 * square * limit_ms)
        return int(2 * limit_ms / (linear + root))


def pairs_of(num_tokens: int, context: int) -> float:
    """Tokens times what each of them looks at, in units of 1024 tokens of context."""
    return num_tokens * (context + num_tokens / 2) / _CONTEXT_UNIT


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


class StepCostMeter:
    """Told of every step by the engine; asked before every step by the planner.

    Chunks are fitted per token, so that a short one counts as much as a long one: beside decodes
    the short ones matter.
    """

    def __init__(self) -> None:
        self._decodes = TwoTermFit()
        self._chunks = TwoTermFit()
        self._tail = 1.0

    @property
    def cost(self) -> StepCost:
        """As measured so far."""
        decodes, chunks = self._decodes, self._chunks
        return StepCost(
            base_ms=decodes.a,
            row_ms=decodes.b,
            token_ms=chunks.a,
            pair_ms=chunks.b,
            tail=self._tail,
        )

    @property
    def told_row_ms(self) -> float:
        """`cost.row_ms`, once steps of different batches tell; 0 before."""
        return self._decodes.b if self._decodes.tells_apart else 0.0

    @property
    def told_chunk_ms(self) -> tuple[float, float]:
        """`cost.token_ms` and `cost.pair_ms`, once prompts of different lengths tell; zeros before:
        short prompts alone say nothing of what attention makes of long ones."""
        chunks = self._chunks
        return (chunks.a, chunks.b) if chunks.tells_apart else (0.0, 0.0)

    def add(self, took_ms: float, *, num_rows: int, num_tokens: int, num_pairs: float) -> None:
        """A step of `num_rows` decodes and chunks of `num_tokens` in all; see `pairs_of`."""
        if num_tokens:
            beside_ms = self._decodes.of(1, num_rows) if num_rows else 0.0
            token_ms = max(0.0, took_ms - beside_ms) / num_tokens
            self._take(self._chunks, 1, num_pairs / num_tokens, token_ms)
        elif num_rows:
            self._note_tail(took_ms, self._decodes.of(1, num_rows))
            self._take(self._decodes, 1, num_rows, took_ms)

    def _note_tail(self, took_ms: float, expected_ms: float) -> None:
        is_slow = took_ms > self._tail * expected_ms > 0
        self._tail += _TAIL_STEP * (is_slow - _SLOW_SHARE)
        self._tail = min(_MAX_TAIL, max(1.0, self._tail))

    def _take(self, fit: TwoTermFit, u: float, v: float, took_ms: float) -> None:
        expected_ms = fit.of(u, v)
        fit.add(u, v, min(took_ms, _SURPRISE * expected_ms) if expected_ms else took_ms)
