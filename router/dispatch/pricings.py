"""How many routes are priced for those who wait: in one look over the line, which is one turn of
the router's loop, and in a second.

A look comes with every request that ends, so that a bound for each look alone is none for the loop.
"""

from __future__ import annotations

from cluster.deadline import Clock

MAX_PRICED = 2
"""A look. The route of a prompt of 100k tokens takes 20 ms, and a look asks up to 33 requests."""
TOKENS_PER_S = 500_000.0
"""Of prompts: 10 % of the loop, at 0.2 us each."""
MOST_TOKENS = TOKENS_PER_S / 2
"""That may be priced at once after a quiet time."""
LEAST_TOKENS = 256
"""That any price counts as: a short prompt takes some 50 us for the fleet's terms."""


class Pricings:
    """Of one line. From the event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._num_left = MAX_PRICED
        self._tokens_left = MOST_TOKENS
        self._seen_s = clock()
        self._is_refused = False

    @property
    def ready_in_s(self) -> float | None:
        """When one that was not priced in this look may be; None: all were."""
        return max(0.0, -self._tokens_left) / TOKENS_PER_S if self._is_refused else None

    def renew(self) -> None:
        """A look begins."""
        self._num_left = MAX_PRICED
        self._is_refused = False

    def take(self, prompt_tokens: int) -> bool:
        """True where one more may be priced, and is. The longest prompt may be in its turn: those
        after it wait until it is made up for."""
        self._earn()
        if self._num_left <= 0 or self._tokens_left <= 0:
            self._is_refused |= self._tokens_left <= 0
            return False
        self._num_left -= 1
        self._tokens_left -= max(LEAST_TOKENS, prompt_tokens)
        return True

    def _earn(self) -> None:
        last_s, self._seen_s = self._seen_s, self._clock()
        earned = TOKENS_PER_S * (self._seen_s - last_s)
        self._tokens_left = min(MOST_TOKENS, self._tokens_left + earned)
