"""A text that nothing was found for is looked at more seldom, and at once again when it was."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.draft_numbers import DrafterKind
from engine.step.drafting.draft import Draft
from engine.step.drafting.paced_guesser import LONGEST_WAIT, PacedGuesser


class Looked:
    """A Guesser with a draft at its places, which counts what it was asked."""

    def __init__(self, *places: int) -> None:
        self._places = places
        self.asked: list[int] = []

    def guess(self, token_ids: Sequence[int], most: int, least: float = 0.0) -> Draft | None:
        """See Guesser."""
        self.asked.append(len(token_ids))
        return Draft([1], [0.9], DrafterKind.NGRAM) if len(token_ids) in self._places else None


def asked(looked: Looked, num_steps: int, *, longest_wait: int) -> list[int]:
    """At which lengths of the text."""
    paced = PacedGuesser(looked)
    for length in range(num_steps):
        paced.guess([0] * length, 4, 0.1, longest_wait=longest_wait)
    return looked.asked


def test_the_longer_nothing_is_found_the_longer_it_is_left_alone() -> None:
    found = asked(Looked(), 400, longest_wait=LONGEST_WAIT)
    gaps = [after - before for before, after in zip(found, found[1:], strict=False)]
    assert gaps[:3] == [1, 1, 1]
    assert gaps == sorted(gaps)
    assert gaps[-1] == LONGEST_WAIT + 1


def test_what_was_found_makes_it_worth_a_look_in_each_step() -> None:
    places = range(100, 140)
    found = asked(Looked(*places), 140, longest_wait=LONGEST_WAIT)
    first = next(length for length in found if length >= 100)
    assert first <= 100 + LONGEST_WAIT
    assert found[found.index(first) :] == list(range(first, 140))


def test_where_a_look_is_nothing_beside_the_step_nobody_waits() -> None:
    assert asked(Looked(), 100, longest_wait=0) == list(range(100))
    few = asked(Looked(), 400, longest_wait=2)
    assert max(b - a for a, b in zip(few, few[1:], strict=False)) == 3
