"""A guesser that is asked the more seldom, the longer it has had nothing: what came meanwhile it is
told at once, at a fraction of the price.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.step.drafting.draft import Draft, Guesser

LONGEST_WAIT = 8
"""Steps. A text that begins to be copied is noticed that much later, at worst."""
_PATIENCE = 4
"""Times in vain, for each step more of a wait."""


class PacedGuesser:
    """Of one sequence."""

    __slots__ = ("_guesser", "_in_vain", "_waited")

    def __init__(self, guesser: Guesser) -> None:
        self._guesser = guesser
        self._in_vain = self._waited = 0

    def guess(
        self, token_ids: Sequence[int], most: int, least: float, *, longest_wait: int
    ) -> Draft | None:
        """As of a Guesser; it is asked at once where `longest_wait` is 0."""
        wait = min(self._in_vain // _PATIENCE, LONGEST_WAIT, longest_wait)
        if self._waited < wait:
            self._waited += 1
            return None
        found, self._waited = self._guesser.guess(token_ids, most, least), 0
        self._in_vain = 0 if found is not None else self._in_vain + 1
        return found
