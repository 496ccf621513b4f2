"""What a draft is, and what makes one of a sequence's text alone.

    guess -> some of it is verified in one step -> guess anew, by the tokens that came

A guess costs time at most, never a token: what is kept is what the sampler draws anyway. What
guesses for a whole engine is a `Drafter` (engine/step/drafters/drafter.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from engine.contract.draft_numbers import DrafterKind

MAX_DRAFT_TOKENS = 16
"""Of one sequence in one step. A row of SmolLM2 costs a tenth of a step of one sequence: at 19 of
20 tokens kept, more than 18 do not pay."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """Tokens that may come next. A Struct, as `RunningView` is."""

    token_ids: list[int]
    chances: list[float]
    """Of each token to be kept, that is, of all up to it to be right: they fall. What a guesser
    promises before the plan; empty where a Drafter has said them in its DraftProspect."""
    drafter: DrafterKind
    """Who made it; `GRAMMAR`: nobody had to guess."""
    num_predicted: int = 0
    """The first so many come from what the client has predicted."""
    num_forced: int = 0
    """The first so many are the only ones that the answer's grammar allows."""

    def first(self, num_tokens: int) -> Draft:
        """So many of its tokens."""
        return Draft(
            self.token_ids[:num_tokens],
            self.chances[:num_tokens],
            self.drafter,
            min(self.num_predicted, num_tokens),
            min(self.num_forced, num_tokens),
        )


class Guesser(Protocol):
    """Of one sequence, from its first decode step to its end, over preemptions."""

    def guess(self, token_ids: Sequence[int], most: int, least: float = 0.0) -> Draft | None:
        """What follows `token_ids`, all that are known of the sequence: 1 to `most` tokens; None:
        nothing worth a try. Tokens whose chance is under `least` would not be verified.

        Called before each step that decodes the sequence; `token_ids` has only grown since, by
        what came. Returns within microseconds for each token that is new.
        """


MakeGuesser = Callable[[int, Sequence[int]], Guesser]
"""From the length of the prompt in tokens, and what the client has predicted of the answer."""
