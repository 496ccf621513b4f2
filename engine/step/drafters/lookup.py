"""Drafts from the sequences' texts: each has a guesser of its own, which costs next to nothing
once a long text is taken in."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from weakref import WeakValueDictionary

from engine.contract.draft_numbers import DrafterKind
from engine.step.batch.step_work import Wanted
from engine.step.drafters.drafter import NO_TIME, NOTHING, DraftProspect, DraftTime
from engine.step.drafting.draft import Draft, MakeGuesser
from engine.step.drafting.hit_rates import SharedRates
from engine.step.drafting.paced_guesser import PacedGuesser
from engine.step.drafting.predicted_text import PredictedText, TextTurns
from engine.step.drafting.prompt_lookup import PromptLookup
from engine.step.grammar_drafts import held_to_grammar
from engine.step.planning.plan import SequenceKey
from engine.step.planning.step_cost import StepCost
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence

_PER_WAIT = 2
"""Sequences in a step, for each step that one of them may wait: with one stream a look is nothing
beside the step, with sixteen all looks are a fiftieth of it."""


class LookupDrafter:
    """A Drafter: its tokens are there before the plan."""

    kind = DrafterKind.NGRAM
    has_price = False
    is_out = is_behind = False
    states_reader = None

    def __init__(self, make: MakeGuesser, turns: TextTurns | None = None) -> None:
        """`turns`: of the guessers that are made, which hear of each step by it."""
        self._make = make
        self._turns = turns or TextTurns()
        self._guesses: dict[SequenceKey, Draft] = {}
        self._least, self._longest_wait = 0.0, 0

    def begin(self, cost: StepCost, num_decodes: int, least: float) -> None:
        """See Drafter."""
        self._guesses.clear()
        self._turns.begin()
        self._least, self._longest_wait = least, num_decodes // _PER_WAIT

    def rest(self) -> None:
        """See Drafter: what comes meanwhile is taken later, at once."""
        self._guesses.clear()

    def prospect(self, request: Request, sequence: Sequence, most: int) -> DraftProspect:
        """See Drafter."""
        guesser = sequence.guesser
        if guesser is None:
            guesser = PacedGuesser(self._make(sequence.num_prompt, request.body.prediction))
            sequence.guesser = guesser
        looked_for = sequence.token_ids, most, self._least
        guess = guesser.guess(*looked_for, longest_wait=self._longest_wait)
        if request.grammar is not None:
            guess = held_to_grammar(guess, sequence, most)
        if guess is None:
            return NOTHING
        self._guesses[sequence.key] = guess
        return DraftProspect(guess.chances)

    def draft(self, wanted: Ordered[Wanted]) -> list[Draft]:
        """See Drafter."""
        return [self._guesses[one.sequence.key].first(one.num_tokens) for one in wanted]

    def settle(self) -> None:
        """See Drafter."""

    def take_time(self) -> DraftTime:
        """See Drafter: what looking up takes is too little to be counted."""
        return NO_TIME


def prompt_lookup(turns: TextTurns | None = None) -> MakeGuesser:
    """Of one engine: how often its sequences go on as before is shared, and so are `turns`, and a
    prediction by the choices of its request."""
    rates, turns = SharedRates(), turns or TextTurns()
    texts: WeakValueDictionary[int, PredictedText] = WeakValueDictionary()

    def make(num_prompt: int, prediction: Ordered[int]) -> PromptLookup:
        if not prediction:
            return PromptLookup(rates, num_prompt, turns=turns)
        found = texts.get(id(prediction))  # it keeps that list: no other has its id
        if found is None:
            found = texts[id(prediction)] = PredictedText(prediction, turns)
        return PromptLookup(rates, num_prompt, found, turns)

    return make
