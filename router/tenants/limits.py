"""What one key may have: rates by GCRA, one number of state each, and a budget by the period.

    allowed at:   |--interval--|--interval--|        one unit after the other, for ever
    a burst:      as many at once as the limit allows; then one each interval
    a cost:       so many intervals at once: reserved as expected, settled as it came out

A rate's state is when all that was let in would have been due, had it come at an even pace. Pure:
states and the time come from outside, so that any store can keep them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

REQUEST_BURST_S = 10.0
"""Requests that were not made in these last seconds may come at once."""
LEAST_BURST = 4
"""Requests that may: with fewer, who asks now and then has less than its rate."""
TOKEN_BURST_S = 60.0
"""Of tokens a whole minute: one prompt may be much of it."""


class LimitKind(enum.StrEnum):
    """What is counted; the values are those of headers and metrics."""

    REQUESTS = "requests"
    INPUT = "input-tokens"
    OUTPUT = "output-tokens"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Left:
    """Of a limit, at a moment."""

    amount: float
    """That could be had at once."""
    reset_s: float
    """Until all of it is there again."""


State = tuple[float, float]
"""Of a rate (when all is due, 0); of a budget (the period's end, what is spent in it)."""
UNTOUCHED: State = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Rate:
    """So many units a minute."""

    key: str
    """Whose state it is, in any store."""
    kind: LimitKind
    per_minute: float
    """Above 0."""
    burst: float = field(init=False)
    """Units that may come at once."""
    interval_s: float = field(init=False)

    def __post_init__(self) -> None:
        is_count = self.kind is LimitKind.REQUESTS
        burst = self.per_minute / 60.0 * (REQUEST_BURST_S if is_count else TOKEN_BURST_S)
        object.__setattr__(self, "burst", max(burst, LEAST_BURST if is_count else 1.0))
        object.__setattr__(self, "interval_s", 60.0 / self.per_minute)

    @property
    def size(self) -> float:
        """What clients are told of it: units a minute."""
        return self.per_minute

    def wait_s(self, state: State, amount: float, now_s: float) -> float:
        """Until `amount` is there; 0: now. More than a burst is let in where a whole one is there,
        and nothing where one unit is."""
        needed = min(max(amount, 1.0), self.burst)
        return max(0.0, max(state[0] - now_s, 0.0) - (self.burst - needed) * self.interval_s)

    def taken(self, state: State, amount: float, now_s: float) -> State:
        """The state after it; a negative amount is given back."""
        return max(state[0], now_s) + amount * self.interval_s, 0.0

    def left(self, state: State, now_s: float) -> Left:
        """For who asks how much there is."""
        owed_s = max(0.0, state[0] - now_s)
        return Left(max(0.0, self.burst - owed_s / self.interval_s), owed_s)


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """So many tokens a period; the first of them begins it."""

    key: str
    tokens: float
    period_s: float
    kind: LimitKind = LimitKind.BUDGET

    @property
    def size(self) -> float:
        """What clients are told of it: tokens a period."""
        return self.tokens

    def wait_s(self, state: State, amount: float, now_s: float) -> float:
        """Until the next period, where nothing is left; the last request may take more than is."""
        end_s, spent = state
        return max(0.0, end_s - now_s) if spent >= self.tokens else 0.0

    def taken(self, state: State, amount: float, now_s: float) -> State:
        """The state after it; a negative amount is given back."""
        end_s, spent = state if state[0] > now_s else (now_s + self.period_s, 0.0)
        return end_s, max(0.0, spent + amount)

    def left(self, state: State, now_s: float) -> Left:
        """For who asks how much there is."""
        end_s, spent = state
        if end_s <= now_s:
            return Left(self.tokens, 0.0)
        return Left(max(0.0, self.tokens - spent), end_s - now_s)


Limit = Rate | TokenBudget
