"""What a key has spent of what it may have.

    enter (a request has come: counted, and nothing else may be empty)
      '-> reserve (its tokens are known: the prompt's, and as many as the answer may get)
            '-> settle, once: what it came to; of one that was refused all is given back

A request is refused before its text is read where that is possible: by `enter`. Who leaves while a
store is asked pays what it has cost by then: to come is a request, and a prompt whose tokens are
counted has been read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cluster.errors import BudgetSpent, NotReady, RateLimited
from router.tenants.limit_store import Charge, LimitStore, Shortage
from router.tenants.limits import Left, Limit, LimitKind, TokenBudget


class Reservation:
    """Tokens that a request may use."""

    __slots__ = ("_account", "_ends_s", "_reserved")

    def __init__(
        self, account: Account, reserved: tuple[int, int], ends_s: Mapping[str, float]
    ) -> None:
        """`ends_s`: when the periods end in which it was taken, by the keys of budgets."""
        self._account: Account | None = account
        self._reserved = reserved
        self._ends_s = ends_s

    def settle(self, prompt_tokens: int, answer_tokens: int) -> None:
        """Idempotent: the first word counts."""
        account, self._account = self._account, None
        if account is not None:
            prompt, answer = self._reserved
            account._settle(prompt_tokens - prompt, answer_tokens - answer, self._ends_s)


class Account:
    """Of one key that has limits."""

    def __init__(
        self,
        limits: Sequence[Limit],
        store: LimitStore,
        on_refusal: Callable[[LimitKind], None] = lambda kind: None,
    ) -> None:
        """`on_refusal` hears which limit a request came up against."""
        self._on_refusal = on_refusal
        self._limits = tuple(limits)
        self._store = store
        self._of_tokens = [each for each in limits if each.kind is not LimitKind.REQUESTS]
        self._budgets = [each for each in limits if isinstance(each, TokenBudget)]
        self._on_entry: list[Charge] = [
            (each, each.kind is LimitKind.REQUESTS) for each in self._limits
        ]

    async def enter(self) -> None:
        """Counts a request. Raises RateLimited and BudgetSpent, with the exact wait."""
        await self._take(self._on_entry, spent=self._on_entry)

    async def reserve(self, prompt_tokens: int, answer_tokens: int) -> Reservation:
        """Raises RateLimited and BudgetSpent, with the exact wait."""
        charges = self._charges(prompt_tokens, answer_tokens)
        await self._take(charges, spent=self._charges(prompt_tokens, 0))
        return Reservation(self, (prompt_tokens, answer_tokens), self._budgets_ends_s())

    def _budgets_ends_s(self) -> dict[str, float]:
        if not self._budgets:
            return {}
        now_s = self._store.clock()
        return {each.key: now_s + self._store.left(each).reset_s for each in self._budgets}

    def left(self) -> list[tuple[Limit, Left]]:
        """Of each limit, as far as it is known at once."""
        return [(limit, self._store.left(limit)) for limit in self._limits]

    async def _take(self, charges: Sequence[Charge], spent: Sequence[Charge]) -> None:
        shortage = await self._store.take(charges, spent)
        if shortage is not None:
            self._on_refusal(shortage.limit.kind)
            raise _refusal(shortage)

    def _settle(self, prompt_tokens: int, answer_tokens: int, ends_s: Mapping[str, float]) -> None:
        """What was taken in a period that is over is given back to none: the next one would have
        more than its tokens."""
        charges = self._charges(prompt_tokens, answer_tokens)
        if ends_s:
            now_s = self._store.clock()
            over = {key for key, end_s in ends_s.items() if end_s <= now_s}
            charges = [one for one in charges if one[1] >= 0 or one[0].key not in over]
        self._store.settle(charges)

    def _charges(self, prompt: int, answer: int) -> list[Charge]:
        """Of a request's tokens."""
        amounts = {
            LimitKind.INPUT: prompt,
            LimitKind.OUTPUT: answer,
            LimitKind.BUDGET: prompt + answer,
        }
        return [(limit, amounts[limit.kind]) for limit in self._of_tokens]


_UNITS = {
    LimitKind.REQUESTS: "requests",
    LimitKind.INPUT: "prompt tokens",
    LimitKind.OUTPUT: "tokens of answers",
}


def _refusal(shortage: Shortage) -> NotReady:
    limit, wait_s = shortage.limit, shortage.wait_s
    if isinstance(limit, TokenBudget):
        return BudgetSpent(
            f"this key has spent the {limit.tokens:g} tokens that it has in "
            f"{limit.period_s:g} s; the next period begins in {wait_s:.3g} s",
            retry_after_s=wait_s,
        )
    return RateLimited(
        f"this key may have {limit.per_minute:g} {_UNITS[limit.kind]} a minute; "
        f"there is room for this request in {wait_s:.3g} s",
        retry_after_s=wait_s,
    )
