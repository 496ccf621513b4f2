"""How long answers get: a length that few of them pass.

Counts by powers of the square root of two, that fade: some two hundred answers count.
"""

from __future__ import annotations

import math
from itertools import accumulate

from cluster.generation import Usage

QUANTILE = 0.9
FIRST_GUESS_TOKENS = 512
"""Before answers are complete: reserved too much for a moment rather than too little."""
MIN_ANSWERS = 8
"""Between two looks, and before the first."""
_PER_OCTAVE = 2
_NUM_BINS = 48
_DECAY = 0.995


class AnswerLengths:
    """Of one router. From the event loop only."""

    def __init__(self) -> None:
        self._bins = [0.0] * _NUM_BINS
        self._weight = 1.0
        """Of the next answer: grows, so that those before it count less."""
        self._quantile = FIRST_GUESS_TOKENS
        self._num_learnt = 0

    def learn(self, usage: Usage, num_choices: int) -> None:
        """An answer is complete."""
        per_choice = max(1.0, usage.completion_tokens / num_choices)
        place = math.ceil(math.log2(per_choice) * _PER_OCTAVE)
        self._bins[min(place, _NUM_BINS - 1)] += self._weight
        self._weight /= _DECAY
        self._num_learnt += 1
        if self._num_learnt % MIN_ANSWERS == 0:
            self._bins = [count / self._weight for count in self._bins]
            self._weight = 1.0
            self._quantile = self._solve(sum(self._bins))

    def expected(self, max_tokens: int) -> int:
        """Of one choice that may get so many."""
        return min(max_tokens, self._quantile)

    def _solve(self, total: float) -> int:
        below = accumulate(self._bins)
        place = next(at for at, num in enumerate(below) if num >= QUANTILE * total)
        return math.ceil(2 ** (place / _PER_OCTAVE))
