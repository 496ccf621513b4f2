"""The accounts of a drafter by what its steps have made of it, without an engine."""

from __future__ import annotations

import pytest

from engine.contract.draft_numbers import DrafterKind
from engine.step.drafters.drafter import DraftTime
from engine.step.drafters.drafter_taking import DrafterTaking
from engine.step.drafting.draft_account import FEWEST_STEPS, FIRST_CREDIT
from engine.step.planning.step_cost import StepCost

PLAIN_MS = 2.5


class Guessing:
    """A head whose steps took what a test says."""

    kind = DrafterKind.HEADS
    has_price = True

    def __init__(self) -> None:
        self.guess_s = 0.0
        self.num_begun = 0

    def begin(self, cost: StepCost, num_decodes: int, least: float) -> None:
        self.num_begun += 1

    def rest(self) -> None: ...

    def take_time(self) -> DraftTime:
        return DraftTime(self.guess_s, 0.0)


def steps(taking: DrafterTaking, most: int) -> int:
    """How many of so many it is asked in before it rests."""
    for number in range(most):
        if not taking.begin(StepCost(), 1, 0.0):
            return number
        taking.take_s()
        taking.note(None, 0.0, PLAIN_MS)
    return most


def test_one_stall_while_it_guesses_is_no_rest_of_thousands_of_steps() -> None:
    guessing = Guessing()
    taking = DrafterTaking(guessing)  # type: ignore[arg-type]
    guessing.guess_s = 1.0  # 400 plain steps: the engine was stopped
    assert steps(taking, 1) == 1
    guessing.guess_s = 0.0
    rested = 0
    while not taking.begin(StepCost(), 1, 0.0):
        rested += 1
        assert rested <= 8 * FEWEST_STEPS


@pytest.mark.parametrize("times", [0.5, 3.0, 20.0])
def test_what_always_takes_long_is_booked_as_it_is(times: float) -> None:
    guessing = Guessing()
    taking = DrafterTaking(guessing)  # type: ignore[arg-type]
    guessing.guess_s = times * PLAIN_MS * 1e-3
    assert steps(taking, 100) <= 1 + FIRST_CREDIT / min(times, 8.0)
