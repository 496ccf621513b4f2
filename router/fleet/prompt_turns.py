"""When a worker will be done with the prompts that it was given, as far as can be told.

    given -> first: computed since then -> over: its first token came, or nobody wants it any more

A prompt is given to a worker when it is nearly done with those before it: prompts wait in the
router, where shares and classes count, and a worker has always something to compute.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.deadline import Clock

MAX_AHEAD_MS = 10.0
"""Of prompts at a worker that is given one more: a round trip to it and back takes 1 to 5 ms. Who
comes now waits for no more than this, where a worker is as fast as it says."""
MAX_PROMPTS = 2
"""At a worker that is slower than it says; short ones may be more."""


class Turn:
    """Of one prompt at one worker."""

    __slots__ = ("_queue", "est_ms", "tenant")

    def __init__(self, queue: PromptTurns, est_ms: float, tenant: str) -> None:
        self._queue: PromptTurns | None = queue
        self.est_ms = est_ms
        self.tenant = tenant

    def over(self) -> None:
        """Idempotent."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.remove(self)


class PromptTurns:
    """Of one worker. From the event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns: list[Turn] = []
        self._first_since_s = 0.0

    @property
    def turns(self) -> Sequence[Turn]:
        """Of prompts that it was given and has not computed, in that order."""
        return self._turns

    @property
    def num_turns(self) -> int:
        """As many."""
        return len(self._turns)

    def give(self, est_ms: float, tenant: str = "") -> Turn:
        """A prompt goes there, which it will take so long to compute."""
        if not self._turns:
            self._first_since_s = self._clock()
        turn = Turn(self, est_ms, tenant)
        self._turns.append(turn)
        return turn

    def remove(self, turn: Turn) -> None:
        """By the turn itself."""
        if turn is self._turns[0]:
            self._first_since_s = self._clock()
        self._turns.remove(turn)

    def free_in_ms(self) -> float | None:
        """When it may be given one more, by its own pace; None: when one is over."""
        if not self._turns:
            return 0.0
        rest_ms = sum(turn.est_ms for turn in self._turns[1:])
        if len(self._turns) >= MAX_PROMPTS and rest_ms >= MAX_AHEAD_MS:
            return None
        done_ms = (self._clock() - self._first_since_s) * 1000
        ahead_ms = max(0.0, self._turns[0].est_ms - done_ms) + rest_ms
        return max(0.0, ahead_ms - MAX_AHEAD_MS)
