"""How many prompt tokens one step computes: a budget in tokens, and in time where somebody waits.

Beside decodes     as long as the step then takes at most `max_step_ms`, or STEP_FACTOR slow
                   steps of these decodes; FEWEST tokens until a chunk has been measured
several prompts    SHARE of the token budget, so that one that comes next waits for a short step
one prompt alone   the whole token budget: large chunks are the fastest

The first prompt of a step always gets FEWEST tokens, so that there is progress whatever was
measured.
"""

from __future__ import annotations

from engine.step.plan import Budget, Chunk, ChunkLimit, RunningView, WaitingView

STEP_FACTOR = 3.0
"""Over slow decode steps, so that p99 of a stream's gaps is at most three times the quiet one. Less
is dear: 2000 tokens beside four sequences on two cores took 1.0 (at once), 1.25 (steps of 10 decode
steps), 1.8 (5) and 2.0 (3), since every chunk of a prompt reads its whole context again."""
FEWEST = 16
"""Tokens; also what chunks are multiples of, as kernels compute rows in tiles of 16."""
SHARE = 4


class ChunkBudget:
    """What is left for prompts in one step, after its decodes."""

    def __init__(self, budget: Budget, *, num_decodes: int, num_prompts: int) -> None:
        self._cost = budget.cost
        self._tokens_left = budget.max_batch_tokens - num_decodes
        self._ms_left: float | None = None
        self._bound = ChunkLimit.TOKENS
        self.limit = ChunkLimit.PROMPTS
        """What cut the prompts short, so far."""
        if num_decodes and budget.cost.knows_chunks:
            self._bound = ChunkLimit.TIME
            self._ms_left = _spare_ms(budget, num_decodes)
        elif num_decodes:
            self._shorten(FEWEST, ChunkLimit.UNMEASURED)
        elif num_prompts > 1:
            self._shorten(max(FEWEST, budget.max_batch_tokens // SHARE), ChunkLimit.SHARE)
        self._floor = min(FEWEST, self._tokens_left)

    def tokens_for(self, view: RunningView | WaitingView) -> int:
        """The chunk that this prompt would get now; 0: none in this step. Changes nothing."""
        wanted = _num_remaining(view)
        if self._ms_left is None:
            return _in_tiles(self._tokens_left, wanted)
        in_time = self._cost.tokens_within(self._ms_left, _num_computed(view))
        return _in_tiles(min(self._tokens_left, max(in_time, self._floor)), wanted)

    def take(self, view: RunningView | WaitingView) -> Chunk:
        """That chunk, which is gone from the budget."""
        num_tokens = self.tokens_for(view)
        if num_tokens < _num_remaining(view):
            self.limit = self._bound
        self._tokens_left -= num_tokens
        self._floor = 0
        if self._ms_left is not None:
            self._ms_left -= self._cost.chunk_ms(num_tokens, _num_computed(view))
        return Chunk(view.key, num_tokens, _num_computed(view))

    def _shorten(self, num_tokens: int, bound: ChunkLimit) -> None:
        if num_tokens < self._tokens_left:
            self._tokens_left, self._bound = num_tokens, bound


def _spare_ms(budget: Budget, num_decodes: int) -> float:
    decodes_ms = budget.cost.decodes_ms(num_decodes)
    auto_ms = STEP_FACTOR * budget.cost.tail * decodes_ms
    return (auto_ms if budget.max_step_ms is None else budget.max_step_ms) - decodes_ms


def _in_tiles(num_tokens: int, wanted: int) -> int:
    """At most `wanted`; less only in whole tiles, or below one tile."""
    if num_tokens >= wanted:
        return wanted
    return num_tokens - num_tokens % FEWEST if num_tokens > FEWEST else num_tokens


def _num_remaining(view: RunningView | WaitingView) -> int:
    return view.num_uncached if isinstance(view, WaitingView) else view.num_remaining


def _num_computed(view: RunningView | WaitingView) -> int:
    return view.num_cached if isinstance(view, WaitingView) else view.num_computed
