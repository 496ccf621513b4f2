"""What a drafter saves, against all that it costs; whether it is asked at all. No clocks.

    asked     every step says what it has gained or cost, in plain steps; what is invested in later
              drafts is charged by and by
    resting   once its credit is spent: so many steps without any of it, twice as many each time
    asked     again, with a credit of one in a hundred of the steps that it has rested

So a drafter that never pays costs a hundredth of the steps at most, once the first credit is spent,
whatever was expected of it. What is expected (planning/draft_lengths.py) may be wrong: of a machine
that others use, of a price that was learnt in other company.
"""

from __future__ import annotations

import math

FIRST_CREDIT, MOST_CREDIT = 4.0, 8.0
"""Plain steps. Who has saved more has no more to lose than that."""
LEAST_CREDIT, CREDIT_SHARE = 0.5, 0.01
FEWEST_STEPS, MOST_STEPS = 64, 4096
"""Of one rest."""
_CHARGED = 1 / 64
"""Of what is invested, with each step: reading a prompt is for the answer, not for a step."""


class DraftAccount:
    """Of one drafter, in steps of about as many decodes."""

    __slots__ = ("_credit", "_invested", "_left", "_rest")

    def __init__(self) -> None:
        self._credit = FIRST_CREDIT
        self._invested = 0.0
        self._rest = FEWEST_STEPS
        self._left = 0
        """Steps of this rest."""

    @property
    def is_resting(self) -> bool:
        """It costs nothing now."""
        return self._left > 0

    def pass_by(self) -> None:
        """A step of a rest."""
        self._left -= 1

    def invest(self, steps: float) -> None:
        """So much was spent on later drafts."""
        self._invested += steps

    def note(self, gained: float) -> None:
        """A step in which it was asked: what that saved, or cost where it is below 0."""
        charge = _CHARGED * self._invested
        self._invested -= charge
        self._credit = min(MOST_CREDIT, self._credit + gained - charge)
        if self._credit >= MOST_CREDIT:
            self._rest = FEWEST_STEPS
        elif self._credit <= 0.0:
            self._begin_rest()

    def _begin_rest(self) -> None:
        """What it owes, and what is lost of what was invested, is rested for too."""
        lost = self._invested - self._credit
        owed = math.ceil(max(0.0, lost - LEAST_CREDIT) / CREDIT_SHARE)
        self._left = min(MOST_STEPS, max(self._rest, owed))
        self._credit = min(MOST_CREDIT, max(LEAST_CREDIT, CREDIT_SHARE * self._left))
        self._invested = 0.0
        self._rest = min(MOST_STEPS, 2 * self._rest)


class DraftAccounts:
    """Of one drafter, by how many sequences share a step: it may pay with one, and not with 16."""

    __slots__ = ("_by_size",)

    def __init__(self) -> None:
        self._by_size: dict[int, DraftAccount] = {}

    def of(self, num_decodes: int) -> DraftAccount:
        """Numbers that are alike share one: 1, 2, 3 to 5, 6 to 11, 12 to 22, and so on."""
        return self._by_size.setdefault(round(math.log2(max(1, num_decodes))), DraftAccount())
