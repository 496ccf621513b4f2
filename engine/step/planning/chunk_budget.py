"""How many prompt tokens one step computes: a budget in tokens, and in time where somebody waits.

Beside decodes     as long as the step then takes at most `max_step_ms`, or STEP_FACTOR slow
                   steps of these decodes; FEWEST tokens until a chunk has been measured
a prompt ends      what others get of its step is the rest of a SHARE of the token budget, so that
                   its first token does not wait for theirs; elsewhere as many rows as the longest
                   home has by then, since the step is so long anyway
other prompts      the whole token budget: large chunks are the fastest, and a prompt that waits
                   behind a longer one gains nothing from shorter ones

The first prompt of a step that decodes always gets FEWEST tokens, so that there is progress
whatever was measured. All of it is of one home; what the step may take is so much for all of them,
since it is as long as the slowest.
"""

from __future__ import annotations

from engine.step.planning.plan import Budget, Chunk, ChunkLimit, RunningView, WaitingView

STEP_FACTOR = 3.0
"""Over slow decode steps, so that p99 of a stream's gaps is at most three times the quiet one.

A chunk of c tokens makes a step of a + b * c, where `a` is what the decodes take alone. With steps
of F * a a prompt takes F / (F - 1) of what it takes in large chunks, where F is STEP_FACTOR * tail:
1.5 times at 3, 1.3 at 4.2, and no more than 1.15 from 7.7 on. Who would rather have the prompt sets
`--max-step-ms`.

Measured on two idle cores with SmolLM2-135M as stored, 4 decodes and one chunk, in ms: a = 6.8; b
at contexts of 0, 500, 1000 and 1500 tokens
    chunks of 16    0.36  0.60  0.92  1.24
    chunks of 48    0.37  0.63  0.90  1.16
    chunks of 512   0.43  0.65  0.86  1.05
and as smooth in between: rows are not dearer for not filling a kernel's tile. So a prompt of 2000
tokens costs 1.1 times in short chunks what it costs in long ones, F aside. To repeat:
`Decoder.forward` of such batches, made as in benchmarks/bench_decoder.py."""
LEAST_TAIL = 1.6
"""Of a quiet stream's p99 over the decode step, as its reader sees it: the way from the engine adds
to what the engine can measure. Colocated on two idle cores, four streams while 2000-token prompts
arrive, in ms at 1.6, 1.8, 2.0 and 2.3: p99 of the gaps 55, 62, 70, 77; to the prompt's first token
2700, 2650, 2580, 2400, and 1750 alone. Quiet p99: 16."""
FEWEST = 16
"""Tokens."""
SHARE = 4


class ChunkBudget:
    """What is left for prompts in one step, after its decodes."""

    def __init__(self, budget: Budget, *, num_decodes: int, most_decodes: int) -> None:
        """`num_decodes`: of this home; `most_decodes`: of any."""
        self._cost = budget.cost
        self._tokens_left = budget.max_batch_tokens - num_decodes
        self.num_rows = num_decodes
        """Of this home in the step, so far."""
        self._share_left = max(FEWEST, budget.max_batch_tokens // SHARE)
        self._scored_left = budget.max_scored_rows
        self._ms_left: float | None = None
        self._bound = ChunkLimit.TOKENS
        self.limit = ChunkLimit.PROMPTS
        """What cut the prompts short, so far."""
        if most_decodes and budget.cost.knows_chunks:
            self._bound = ChunkLimit.TIME
            self._ms_left = _limit_ms(budget, most_decodes) - budget.cost.decodes_ms(num_decodes)
        elif most_decodes:
            self._shorten(FEWEST, ChunkLimit.UNMEASURED)
        self._floor = min(FEWEST, self._tokens_left)

    def tokens_for(self, view: RunningView | WaitingView) -> int:
        """The chunk that this prompt would get now; 0: none in this step. Changes nothing."""
        wanted = num_remaining(view)
        if view.is_scored:
            wanted = min(wanted, self._scored_left)
        if self._ms_left is None:
            return min(self._tokens_left, wanted)
        in_time = self._cost.tokens_within(self._ms_left, _num_computed(view))
        return min(self._tokens_left, max(in_time, self._floor), wanted)

    def lacks_rows(self, view: RunningView | WaitingView) -> bool:
        """True when others' scored rows leave none for this prompt in this step."""
        return view.is_scored and self._scored_left == 0

    def take(self, view: RunningView | WaitingView) -> Chunk:
        """That chunk, which is gone from the budget."""
        num_tokens = self.tokens_for(view)
        self._scored_left -= num_tokens if view.is_scored else 0
        self._tokens_left -= num_tokens
        self.num_rows += num_tokens
        self._share_left -= num_tokens
        self._floor = 0
        if num_tokens < num_remaining(view):
            self.limit = self._bound
        if self._ms_left is not None:
            self._ms_left -= self._cost.chunk_ms(num_tokens, _num_computed(view))
        return Chunk(view.key, num_tokens, _num_computed(view))

    def make_way(self, most_rows: int) -> None:
        """A prompt ends in this step, here or elsewhere: it is not to wait for others. `most_rows`:
        of any home so far, and nobody waits for as many here."""
        if self._ms_left is None:
            free_rows = most_rows - self.num_rows
            self._shorten(max(0, self._share_left, free_rows), ChunkLimit.SHARE)

    def _shorten(self, num_tokens: int, bound: ChunkLimit) -> None:
        if num_tokens < self._tokens_left:
            self._tokens_left, self._bound = num_tokens, bound


def num_remaining(view: RunningView | WaitingView) -> int:
    """Tokens of the prompt that are to be computed."""
    return view.num_uncached if isinstance(view, WaitingView) else view.num_remaining


def _limit_ms(budget: Budget, most_decodes: int) -> float:
    auto_ms = STEP_FACTOR * max(budget.cost.tail, LEAST_TAIL) * budget.cost.decodes_ms(most_decodes)
    return auto_ms if budget.max_step_ms is None else budget.max_step_ms


def _num_computed(view: RunningView | WaitingView) -> int:
    return view.num_cached if isinstance(view, WaitingView) else view.num_computed
