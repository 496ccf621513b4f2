"""How often a model's guesses are kept."""

from __future__ import annotations

from engine.step.drafting.draft import MAX_DRAFT_TOKENS
from engine.step.drafting.kept_rates import OwnKeptRates, SharedKeptRates


def test_a_sequence_begins_with_the_rate_of_all_and_soon_has_its_own() -> None:
    shared = SharedKeptRates()
    first = OwnKeptRates(shared)
    assert first.rate == shared.rate
    for _ in range(10):
        first.note(4, 4)
    second = OwnKeptRates(shared)
    assert 0.85 < second.rate < first.rate
    for _ in range(10):
        second.note(1, 0)
    assert second.rate < 0.4 < first.rate


def test_chances_fall_and_end_where_they_are_not_worth_a_row() -> None:
    rates = OwnKeptRates(SharedKeptRates())
    chances = rates.chances(100, 0.2)
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] >= 0.2 > chances[-1] * rates.rate
    assert len(rates.chances(100, 0.0)) == MAX_DRAFT_TOKENS
    assert len(rates.chances(3, 0.0)) == 3
    assert rates.chances(3, 0.99) == []


def test_what_was_found_wrong_is_tried_again_by_and_by() -> None:
    shared = SharedKeptRates()
    rates = OwnKeptRates(shared)
    for _ in range(30):
        rates.note(1, 0)
    low = rates.rate
    for _ in range(1500):
        rates.fade()
        shared.fade()
    assert low < 0.2
    assert rates.rate > 0.6
