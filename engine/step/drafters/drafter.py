"""What guesses coming tokens for an engine: asked before a plan, and told what the plan wants.

    begin -> prospect of each sequence -> the plan -> draft, of those that it wants -> settle
    rest     a step without it: engine/step/drafting/draft_account.py says when

Chances and prices come first, so that the plan can choose; tokens may be made afterwards, where
making them costs something.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Protocol

import msgspec

from engine.contract.draft_numbers import DrafterKind
from engine.step.batch.step_work import Wanted
from engine.step.drafting.draft import Draft
from engine.step.planning.step_cost import StepCost
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence


class DraftProspect(msgspec.Struct, frozen=True, gc=False):
    """What a draft of one sequence would be worth."""

    chances: Ordered[float] = ()
    """Of each token to be kept, that is, of all up to it to be right: they fall."""
    guess_ms: float = 0.0
    """What making one of its tokens takes, beside what verifying it does."""


class DraftTime(msgspec.Struct, frozen=True, gc=False):
    """Seconds that a drafter has taken."""

    guess_s: float = 0.0
    """For drafts."""
    read_s: float = 0.0
    """For what makes later ones possible."""

    @property
    def all_s(self) -> float:
        """Of both."""
        return self.guess_s + self.read_s


NOTHING = DraftProspect()
NO_TIME = DraftTime()


@dataclass(frozen=True, slots=True)
class SeenRows:
    """Rows of one sequence in a step that has been computed."""

    sequence: Sequence
    row: int
    """The first, among all of the step's."""
    place: int
    """Of its token in the sequence."""
    is_prompt: bool = False
    """They are of tokens that were known before the sequence decoded."""

    @property
    def num_right(self) -> int:
        """Of known tokens, once the step has given its tokens; the others were wrong guesses."""
        return self.sequence.num_computed - self.place


class StatesReader(Protocol):
    """What reads the states that the target's steps leave."""

    def saw(self, rows: Ordered[SeenRows]) -> None:
        """Of the step that was computed last, once its tokens are given. Never raises."""


class Drafter(Protocol):
    """One engine's. Called from its one thread; what it raises is a bug."""

    kind: DrafterKind
    has_price: bool
    """Asking and guessing take time that is worth an account: a drafter that does not pay rests.
    Of one without a price neither `settle` nor `take_time` is called."""

    @property
    def is_out(self) -> bool:
        """It has failed too often: it is asked as ever, and promises nothing any more."""

    @property
    def states_reader(self) -> StatesReader | None:
        """What of it reads the states that the target's steps leave; None: nothing does."""

    @property
    def is_behind(self) -> bool:
        """Of the sequences asked for since `begin`, some would be read by `settle`."""

    def begin(self, cost: StepCost, num_decodes: int, least: float) -> None:
        """A step of so many decodes is planned: what was guessed before is forgotten. Rows with a
        chance under `least` would not be verified."""

    def rest(self) -> None:
        """As `begin`, of a step without it: it is asked nothing, and does nothing for later ones.
        What it knew of sequences may be out of date when it is asked again."""

    def prospect(self, request: Request, sequence: Sequence, most: int) -> DraftProspect:
        """Of a sequence that decodes, of at most `most` tokens; without chances: it cannot be
        drafted for now."""

    def draft(self, wanted: Ordered[Wanted]) -> list[Draft]:
        """In their order; a draft may be shorter than wanted, or have no token."""

    def settle(self) -> None:
        """The step has no prompts, and its drafts are made: time for what makes later ones
        possible, in bounds."""

    def take_time(self) -> DraftTime:
        """Of `draft` and `settle`, and `saw` of a StatesReader, since this was last asked."""
