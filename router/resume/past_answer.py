"""What was told of an answer before the connection that gets the rest of it.

It may be more than its client has read, or less: the answer is told again from its beginning, the
same tokens and so the same text, and each client is given what it lacks (router/resume/place.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from router.dispatch.stream import ChoiceTokens, Completed


@dataclass(frozen=True, slots=True)
class PastAnswer:
    """`told` in the order in which it came, `end` where all was told."""

    told: tuple[ChoiceTokens, ...] = ()
    end: Completed | None = None

    @property
    def num_tokens(self) -> int:
        """Over all choices."""
        return sum(len(each.tokens) for each in self.told)

    def token_ids_of(self, choice: int) -> list[int]:
        """All of that choice."""
        parts = (each.tokens for each in self.told if each.choice == choice)
        return [token.token_id for part in parts for token in part]
