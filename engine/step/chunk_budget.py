"""How many prompt tokens one step computes: a budget in tokens, and in time where somebody waits.

Beside decodes     as long as the step then takes at most `max_step_ms`, or STEP_FACTOR slow
                   steps of these decodes; FEWEST tokens until a chunk has been measured
a prompt ends      what others get of its step is the rest of a SHARE of the token budget, so that
                   its first token does not wait for theirs
other prompts      the whole token budget: large chunks are the fastest, and a prompt that waits
                   behind a longer one gains nothing from shorter ones

The first prompt of a step that decodes always gets some tokens, so that there is progress whatever
was measured: FEWEST under a limit that was asked for, WORTHWHILE under our own.
"""

from __future__ import annotations

from cluster.models.footprint import SCORED_ROWS
from engine.step.plan import Budget, Chunk, ChunkLimit, RunningView, WaitingView

STEP_FACTOR = 3.0
"""Over slow decode steps, so that p99 of a stream's gaps is at most three times the quiet one.

A chunk of c tokens makes a step of a + b * c, where `a` is what the decodes take alone. With steps
of F * a a prompt takes F / (F - 1) of what it takes in large chunks, where F is STEP_FACTOR * tail:
1.5 times at 3, 1.2 at 6, and no more than 1.15 from 7.7 on. The whole engine, 2000 tokens beside
four sequences, in seconds of processor time: 3.2 at once (5 steps), 4.1 at 6 (33 steps: 1.3 times),
6.6 at 3 without WORTHWHILE (125 steps: 2.1 times).

Measured on two cores with SmolLM2-135M in bfloat16, 4 decodes and one chunk, in ms of processor
time, which counts no neighbours (they were busy: less on an idle machine, in proportion): a = 34;
b = 2.0 to 2.5 at context 0 and 3.7 to 3.9 at context 1500, for every length from 16 to 384. To
repeat: `Decoder.forward` of such batches, made as in benchmarks/bench_decoder.py, between two calls
of `time.process_time`."""
LEAST_TAIL = 2.0
"""Of a quiet stream's p99 over the decode step, as its reader sees it: the way from the engine adds
to what the engine can measure. 14 ms where a step of four takes 6 to 8 on idle cores; p99 over p50
of 1.5 to 3.3 beside busy neighbours (the quiet rows of benchmarks.bench_interference)."""
WORTHWHILE = 48
"""Tokens of the shortest chunk under our own limit. By the figures above a token in a chunk of 16
costs 1.5 times one in a chunk of 384, in one of 32 1.2 times, of 48 1.15 and of 128 as much."""
FEWEST = 16
"""Tokens; also what chunks are multiples of, as kernels compute rows in tiles of 16."""
SHARE = 4


class ChunkBudget:
    """What is left for prompts in one step, after its decodes."""

    def __init__(self, budget: Budget, *, num_decodes: int) -> None:
        self._cost = budget.cost
        self._tokens_left = budget.max_batch_tokens - num_decodes
        self._share_left = max(FEWEST, budget.max_batch_tokens // SHARE)
        self._scored_left = SCORED_ROWS
        self._ms_left: float | None = None
        self._bound = ChunkLimit.TOKENS
        self.limit = ChunkLimit.PROMPTS
        """What cut the prompts short, so far."""
        if num_decodes and budget.cost.knows_chunks:
            self._bound = ChunkLimit.TIME
            self._ms_left = _spare_ms(budget, num_decodes)
        elif num_decodes:
            self._shorten(FEWEST, ChunkLimit.UNMEASURED)
        least = WORTHWHILE if self._ms_left is not None and budget.max_step_ms is None else FEWEST
        self._floor = min(least, self._tokens_left)

    def tokens_for(self, view: RunningView | WaitingView) -> int:
        """The chunk that this prompt would get now; 0: none in this step. Changes nothing."""
        wanted = _num_remaining(view)
        if view.is_scored:
            wanted = min(wanted, self._scored_left)
        if self._ms_left is None:
            return _in_tiles(self._tokens_left, wanted)
        in_time = self._cost.tokens_within(self._ms_left, _num_computed(view))
        return _in_tiles(min(self._tokens_left, max(in_time, self._floor)), wanted)

    def lacks_rows(self, view: RunningView | WaitingView) -> bool:
        """True when others' scored rows leave none for this prompt in this step."""
        return view.is_scored and self._scored_left == 0

    def take(self, view: RunningView | WaitingView) -> Chunk:
        """That chunk, which is gone from the budget."""
        num_tokens = self.tokens_for(view)
        self._scored_left -= num_tokens if view.is_scored else 0
        self._tokens_left -= num_tokens
        self._share_left -= num_tokens
        self._floor = 0
        if num_tokens < _num_remaining(view):
            self.limit = self._bound
        elif self._ms_left is None:
            self._shorten(max(0, self._share_left), ChunkLimit.SHARE)
        if self._ms_left is not None:
            self._ms_left -= self._cost.chunk_ms(num_tokens, _num_computed(view))
        return Chunk(view.key, num_tokens, _num_computed(view))

    def _shorten(self, num_tokens: int, bound: ChunkLimit) -> None:
        if num_tokens < self._tokens_left:
            self._tokens_left, self._bound = num_tokens, bound


def _spare_ms(budget: Budget, num_decodes: int) -> float:
    decodes_ms = budget.cost.decodes_ms(num_decodes)
    auto_ms = STEP_FACTOR * max(budget.cost.tail, LEAST_TAIL) * decodes_ms
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
