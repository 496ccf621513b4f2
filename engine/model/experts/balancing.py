"""The conductor's turn between two steps: a word to all ranks, followed here as well."""

from __future__ import annotations

from collections.abc import Callable

from engine.model.experts.balance import ExpertBalance
from engine.model.experts.rank_experts import Outcome, RankExperts
from engine.model.experts.rebalancer import Rebalancer
from engine.model.experts.words import Drop, ExpertWord, Measure, Place, pack

Tell = Callable[[bytes], None]
"""To every other rank, ordered with the steps: `unpack` and `RankExperts.follow` are their part."""


class Balancing:
    """Of a conductor. From the thread of its steps."""

    def __init__(self, rebalancer: Rebalancer, own: RankExperts, tell: Tell) -> None:
        self._rebalancer, self._own, self._tell = rebalancer, own, tell

    @property
    def balance(self) -> ExpertBalance:
        """For the metrics."""
        return self._rebalancer.balance

    def turn(self) -> None:
        """Once between two steps. Raises what ends the group."""
        word = self._rebalancer.next_word()
        while word is not None:
            word = self._after(word, self._follow(word))

    def go_on(self) -> None:
        """Once where there is no step: what was begun comes to its end, and lets go of its memory;
        nothing begins. Raises what ends the group."""
        if self._rebalancer.is_reading:
            self.turn()

    def _follow(self, word: ExpertWord) -> Outcome:
        self._tell(pack(word))
        return self._own.follow(word)

    def _after(self, word: ExpertWord, outcome: Outcome) -> ExpertWord | None:
        """What to say next, at once."""
        match word:
            case Measure():
                assert outcome.picks is not None
                return self._rebalancer.measured(outcome.picks.tolist())
            case Place():
                self._rebalancer.tried(is_placed=outcome.is_placed)
            case Drop():
                self._rebalancer.dropped()
        return None
