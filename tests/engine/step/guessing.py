"""Guessers that are right, wrong or either, and a clock by which drafts always pay."""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine.contract.draft_numbers import DrafterKind
from engine.step.drafting.draft import Draft, MakeGuesser
from tests.engine.step.engine_scenario import VOCAB_SIZE, VirtualClock


class TickingClock(VirtualClock):
    """Each look takes a while: a step takes as long with drafts as without."""

    def __call__(self) -> float:
        self.now_s += 1e-6
        return self.now_s


class Oracle:
    """A Guesser that knows the answer: the request's prediction, of which it makes mistakes."""

    def __init__(self, num_prompt: int, answer: Sequence[int], chance: random.Random) -> None:
        self._num_prompt, self._answer, self._chance = num_prompt, list(answer), chance
        self.mistakes = 0.0
        """Of its tokens, as a share."""
        self.shortest = 1

    def guess(self, token_ids: Sequence[int], most: int, least: float = 0.0) -> Draft | None:
        """See Guesser."""
        place = len(token_ids) - self._num_prompt
        tokens = self._answer[place : place + self._chance.randint(min(self.shortest, most), most)]
        tokens = [self._maybe_wrong(token) for token in tokens]
        if not tokens:
            return None
        chances = [0.9**i for i in range(len(tokens))]
        return Draft(tokens, chances, DrafterKind.NGRAM, len(tokens))

    def _maybe_wrong(self, token: int) -> int:
        is_wrong = self._chance.random() < self.mistakes
        return (token + self._chance.randrange(1, VOCAB_SIZE)) % VOCAB_SIZE if is_wrong else token


def oracles(mistakes: float, seed: int = 0, shortest: int = 1) -> MakeGuesser:
    """Of an engine whose requests predict their answers."""
    chance = random.Random(seed)

    def make(num_prompt: int, prediction: Sequence[int]) -> Oracle:
        oracle = Oracle(num_prompt, prediction, chance)
        oracle.mistakes, oracle.shortest = mistakes, shortest
        return oracle

    return make
