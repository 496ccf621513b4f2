"""Weighted shares of tenants, after the virtual token counter (arXiv 2401.00588).

    comes, and has nothing waiting -> lifted to the level -> waits or is served -> charged
    the level: the counter of whom was served last, at that moment; it never falls

Of those who wait the one with the smallest counter is served. A tenant that was away has no claim
on what it did not use, and one that had an idle fleet for itself owes nothing for it. What is
charged are tokens really computed, by the weight of whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterable

from router.fairness.counters import Counters, MemoryCounters

CACHED_WEIGHT = 0.1
"""Of a prompt token whose KV was there: it costs a look-up and room."""
ANSWER_WEIGHT = 2.0
"""Of an answer's token beside one of a prompt, as the paper has it."""
LEAST_CHARGE = 1.0
"""Of a request: nothing is free, else its tenant's turn would never end."""


class Shares:
    """Of one class of requests."""

    def __init__(self, counters: Counters | None = None) -> None:
        self._counters = MemoryCounters() if counters is None else counters
        self._level = 0.0

    def came(self, tenant: str) -> None:
        """A request of a tenant that has none waiting."""
        self._counters.lift(tenant, self._level)

    def next_of(self, waiting: Iterable[str]) -> str:
        """Whose turn it is; of equals the first. There is at least one."""
        return min(waiting, key=self._counters.of)

    def in_order(self, waiting: Iterable[str]) -> list[str]:
        """Whose turn it would be, one after the other."""
        return sorted(waiting, key=self._counters.of)

    def served(self, tenant: str) -> None:
        """One of its requests begins."""
        self._level = max(self._level, self._counters.of(tenant))

    def charge(self, tenant: str, tokens: float, weight: float) -> None:
        """Negative: given back."""
        self._counters.add(tenant, tokens / weight)


class Bill:
    """What one request costs its tenant: its prompt as it is expected, then as it was computed, and
    its answer as it is made. A prompt that is computed once more elsewhere is charged once."""

    __slots__ = ("_prompt", "_shares", "_tenant", "_weight")

    def __init__(self, shares: Shares, tenant: str, weight: float, prompt_tokens: int) -> None:
        """All of the prompt, until it is known how much of it is cached: places that come free
        together do not all go to one tenant."""
        self._shares = shares
        self._tenant = tenant
        self._weight = weight
        self._prompt = max(LEAST_CHARGE, prompt_tokens)
        shares.charge(tenant, self._prompt, weight)

    def prompt(self, *, computed: int, cached: int) -> None:
        """The last word counts."""
        cost = max(LEAST_CHARGE, computed + CACHED_WEIGHT * cached)
        if cost != self._prompt:
            self._shares.charge(self._tenant, cost - self._prompt, self._weight)
            self._prompt = cost

    def nothing_done(self) -> None:
        """Its prompt went to no worker: all but the least is given back. Idempotent."""
        self.prompt(computed=0, cached=0)

    def produced(self, num_tokens: int) -> None:
        """Tokens of its answer."""
        self._shares.charge(self._tenant, ANSWER_WEIGHT * num_tokens, self._weight)
