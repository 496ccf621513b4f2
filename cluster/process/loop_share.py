"""A bounded share of each turn of the event loop, for work that would otherwise hold it.

    work a little, `breathe`, work a little, `breathe` ...
        within the turn's budget: on at once       spent: in line for the next turn

All who share one budget take turns in the order in which they asked, one in each turn of the loop,
so that sixteen followers together hold the loop no longer than one.
"""

from __future__ import annotations

import asyncio
import time

from cluster.deadline import Clock

BUDGET_S = 0.002
"""Streams notice nothing below some 5 ms; a slice that has begun is finished.

Who comes first in a turn is given the budget there and then, who waits in line at the beginning of
a turn: between two looks of a stream may lie two budgets. The longest gaps with slices of 0.8 ms
were 2.5 ms beside one who works, 3.3 beside 20 and 4.1 beside 200 (2-core machine); where nobody
was given it there and then 2.5, 2.6 and 3.3 to 4.1, and a short request took more turns."""


class LoopShare:
    """One per loop, which whoever makes the loop's parts hands to each: budgets of their own add
    up. What happens between two calls of `breathe` should take under a millisecond."""

    def __init__(self, budget_s: float = BUDGET_S, *, clock: Clock = time.monotonic) -> None:
        self._budget_s = budget_s
        self._clock = clock
        self._ends_s = clock()
        self._line = asyncio.Lock()
        self._is_given = False
        """In this turn of the loop, to whoever came first."""

    async def breathe(self) -> None:
        """Returns at once while there is budget, else in a later turn of the loop."""
        if self.has_turn():
            return
        async with self._line:
            if self._clock() >= self._ends_s:
                await asyncio.sleep(0)
                self._give()

    def has_turn(self) -> bool:
        """Whether one may go on at once, as after `breathe`; who may not, and cannot wait here, is
        to ask for its turn elsewhere."""
        if self._clock() < self._ends_s:
            return True
        if self._is_given or self._line.locked():
            return False
        self._give()
        return True

    def _give(self) -> None:
        self._ends_s = self._clock() + self._budget_s
        if not self._is_given:
            self._is_given = True
            asyncio.get_running_loop().call_soon(self._turn_is_over)

    def _turn_is_over(self) -> None:
        self._is_given = False
