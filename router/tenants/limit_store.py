"""Where the states of limits are kept: here, or, with several routers, where all of them look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.deadline import Clock
from router.tenants.limits import UNTOUCHED, Left, Limit, State

Charge = tuple[Limit, float]
"""A limit and how many units of it; 0: it must not be empty."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why something was not taken."""

    limit: Limit
    wait_s: float
    """Until it could be."""


class LimitStore(Protocol):
    """From the event loop only. One that is shared and away answers by what is known here: nobody
    is refused on account of the store itself."""

    @property
    def clock(self) -> Clock:
        """By which its limits' times go."""
        ...

    async def take(
        self, charges: Sequence[Charge], spent: Sequence[Charge] = ()
    ) -> Shortage | None:
        """All of them, or none and why: the one with the longest wait. `spent`: of these, what is
        gone before it is asked for, and is counted of who leaves before the answer."""
        ...

    def settle(self, charges: Sequence[Charge]) -> None:
        """Adds what more it was, or gives back (negative). Asks nothing, and does not wait."""
        ...

    def left(self, limit: Limit) -> Left:
        """As far as it is known here, at once."""
        ...


MAX_STATES = 65_536
"""Over so many those that are over are dropped: a rate's once all is due, a budget's period. Where
most are not, that is tried again when there are twice as many: a look at all takes milliseconds."""


class MemoryLimits:
    """The LimitStore of one router."""

    def __init__(self, clock: Clock, states: Mapping[str, State] | None = None) -> None:
        """`states`: to begin with, by the limits' keys."""
        self._clock = clock
        self._states = dict(states or {})
        self._most_states = MAX_STATES

    @property
    def clock(self) -> Clock:
        """See LimitStore."""
        return self._clock

    @property
    def states(self) -> Mapping[str, State]:
        """By the limits' keys, on its clock."""
        return self._states

    def hear(self, states: Mapping[str, State]) -> None:
        """These count from now on."""
        self._states.update(states)
        if len(self._states) > self._most_states:
            now_s = self._clock()
            self._states = {key: each for key, each in self._states.items() if each[0] > now_s}
            self._most_states = max(MAX_STATES, 2 * len(self._states))

    async def take(
        self, charges: Sequence[Charge], spent: Sequence[Charge] = ()
    ) -> Shortage | None:
        """See LimitStore. Nobody can leave before the answer."""
        now_s, states = self._clock(), self._states
        worst: Shortage | None = None
        for limit, amount in charges:
            wait_s = limit.wait_s(states.get(limit.key, UNTOUCHED), amount, now_s)
            if wait_s > (0.0 if worst is None else worst.wait_s):
                worst = Shortage(limit, wait_s)
        if worst is None:
            self.settle(charges)
        return worst

    def settle(self, charges: Sequence[Charge]) -> None:
        """See LimitStore."""
        now_s, states = self._clock(), self._states
        self.hear(
            {
                limit.key: limit.taken(states.get(limit.key, UNTOUCHED), amount, now_s)
                for limit, amount in charges
                if amount
            }
        )

    def left(self, limit: Limit) -> Left:
        """See LimitStore."""
        return limit.left(self._states.get(limit.key, UNTOUCHED), self._clock())
