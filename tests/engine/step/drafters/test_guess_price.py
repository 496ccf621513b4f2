"""What a draft model's guesses take: expected, measured, and forgotten where nothing is guessed."""

from __future__ import annotations

import pytest

from engine.step.drafters.guess_price import GuessPrice
from engine.step.planning.step_cost import StepCost

COST = StepCost(base_ms=8.0, row_ms=0.4, token_ms=0.2)


def measured(round_ms: float, row_ms: float) -> GuessPrice:
    price = GuessPrice(0.25)
    for i in range(60):
        rounds, rows = 1 + i % 4, (1 + i % 4) * (1 + i % 7)
        price.note_drafts(rounds, rows, round_ms * rounds + row_ms * rows, COST)
    return price


def test_before_the_first_guess_it_is_expected_to_be_as_the_weights_are() -> None:
    price = GuessPrice(0.25)
    assert price.token_ms(1, COST) == pytest.approx(2.1)
    assert price.token_ms(4, COST) == pytest.approx(0.6)
    assert price.read_ms(COST) == pytest.approx(0.05)
    assert price.token_ms(1, StepCost()) == 0.0


def test_it_is_as_measured_then() -> None:
    price = measured(1.0, 0.1)
    assert price.token_ms(1, COST) == pytest.approx(1.1, rel=0.15)
    assert price.token_ms(8, COST) == pytest.approx(0.225, rel=0.15)
    price.note_reading(100, 4.0)
    assert price.read_ms(COST) == pytest.approx(0.04)


def test_a_step_that_lost_its_core_hardly_counts() -> None:
    price = measured(1.0, 0.1)
    price.note_drafts(1, 1, 500.0, COST)
    assert price.token_ms(1, COST) < 2.0


def test_a_price_that_was_too_dear_is_forgotten_while_nothing_is_guessed() -> None:
    price = measured(20.0, 2.0)
    dear = price.token_ms(1, COST)
    for _ in range(1500):
        price.note_idle()
    assert dear > 15
    assert price.token_ms(1, COST) < 3.0
