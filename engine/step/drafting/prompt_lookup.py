"""Prompt lookup: what followed the last tokens before, in prompt, answer or prediction.

    the end of the text was seen before? -> the place after it is followed, token by token
    a token that is not the one there    -> another place is looked for

Whether drafts are verified or not, each token that comes says whether the place was right: so rates
are known of sequences that are not drafted for, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.draft_numbers import DrafterKind
from engine.step.drafting.draft import Draft
from engine.step.drafting.hit_rates import LONGEST, OwnRates, SharedRates
from engine.step.drafting.ngram_index import PART_TOKENS, SEPARATOR, NgramIndex
from engine.step.drafting.predicted_text import PredictedText, TextTurns

LEAST_CHANCE = 0.1
"""A token that comes so seldom is worth no row anywhere."""
_FEW_TOKENS = 64
"""Tokens that are taken one by one."""
_SURE_LENGTH = 8
"""An answer is expected to begin as it was predicted: like after a run of that length."""


class PromptLookup:
    """A Guesser."""

    def __init__(
        self,
        rates: SharedRates,
        num_prompt: int,
        predicted: PredictedText | None = None,
        turns: TextTurns | None = None,
    ) -> None:
        """`predicted`: tokens that the client expects. The last PART_TOKENS of a prompt count.
        `turns`: of its engine, where there is one."""
        self._index = NgramIndex()
        self._turns = turns or TextTurns()
        self._rates = OwnRates(rates)
        self._num_prompt = num_prompt
        self._num_seen = max(0, num_prompt - PART_TOKENS)
        self._place: int | None = None
        self._length = 0
        self._num_predicted = 0
        self._predicted = predicted
        """Until its index is there."""
        if predicted is not None:
            self._num_predicted = predicted.num_tokens
            self._place, self._length = 0, _SURE_LENGTH

    def guess(self, token_ids: Sequence[int], most: int, least: float = 0.0) -> Draft | None:
        """See Guesser."""
        if not self._has_caught_up(token_ids):
            return None
        place, least = self._place, max(least, LEAST_CHANCE)
        if place is None or self._rates.rate(self._length) < least:
            return None
        return self._draft(place, most, least)

    def _draft(self, place: int, most: int, least: float) -> Draft | None:
        """What follows `place`; where the text ends there, it is taken to go round."""
        tokens = self._index.text[place : place + most].tolist()
        if len(tokens) < most:
            tokens = (tokens * (most // len(tokens) + 1))[:most]
        chances, chance, length = list[float](), 1.0, self._length
        for token in tokens:
            chance *= self._rates.rate(length)
            if chance < least or token == SEPARATOR:
                break
            chances.append(chance)
            length = min(length + 1, LONGEST)
        if not chances:
            return None
        predicted = min(max(0, self._num_predicted - place), len(chances))
        return Draft(tokens[: len(chances)], chances, DrafterKind.NGRAM, predicted)

    def _has_caught_up(self, token_ids: Sequence[int]) -> bool:
        """False: the rest of a long text has to wait for the next call."""
        if self._predicted is not None:
            index = self._predicted.index()
            if index is None:
                return False
            self._index, self._predicted = index, None
        num_known = len(token_ids)
        many = max(self._num_prompt, num_known - _FEW_TOKENS) - self._num_seen
        if many > 0:
            if taken := self._turns.take(many):
                end = self._num_seen + taken
                self._index.add_many(token_ids[self._num_seen : end])
                self._num_seen = end
            if taken < many:
                return False
        for token in token_ids[self._num_seen :]:
            self._take(token)
        self._num_seen = num_known
        return True

    def _take(self, token: int) -> None:
        """The next token of the text."""
        place, index = self._place, self._index
        if place is not None:
            is_hit = index.text[place] == token
            self._rates.note(self._length, is_hit)
            place = place + 1 if is_hit else None
            self._length = min(self._length + 1, LONGEST) if is_hit else 0
        after_four, after_pair = index.add(token)
        if place is None or (after_four is not None and self._length < 4):
            place = after_four or after_pair
            self._length = 0 if place is None else index.length_at(place)
        self._place = place
