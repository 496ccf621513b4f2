"""Rates begin as those of everybody, become one's own, and may recover."""

from __future__ import annotations

from engine.step.drafting.hit_rates import LONGEST, OwnRates, SharedRates


def test_longer_runs_are_trusted_more_before_anything_was_tried() -> None:
    rates = OwnRates(SharedRates())
    expected = [rates.rate(length) for length in range(2, LONGEST + 1)]
    assert expected == sorted(expected)
    assert 0.1 < expected[0] < expected[-1] < 1.0


def test_a_sequence_that_copies_is_soon_trusted_and_its_neighbours_hardly_more() -> None:
    shared = SharedRates()
    own, other = OwnRates(shared), OwnRates(shared)
    before = other.rate(LONGEST)
    for _ in range(30):
        own.note(LONGEST, True)
    assert own.rate(LONGEST) > 0.95
    assert before < other.rate(LONGEST) < own.rate(LONGEST)


def test_no_rate_is_certain() -> None:
    own = OwnRates(SharedRates())
    for _ in range(1000):
        own.note(LONGEST, True)
    assert own.rate(LONGEST) <= 0.98


def test_short_runs_that_fail_do_not_speak_of_long_ones() -> None:
    own = OwnRates(SharedRates())
    before = own.rate(LONGEST)
    for _ in range(30):
        own.note(2, False)
    assert own.rate(2) < 0.1
    assert own.rate(LONGEST) == before


def test_a_rate_that_had_fallen_recovers_with_the_trials_that_follow() -> None:
    own = OwnRates(SharedRates())
    for _ in range(50):
        own.note(LONGEST, False)
    low = own.rate(LONGEST)
    for _ in range(50):
        own.note(LONGEST, True)
    assert low < 0.3 < 0.7 < own.rate(LONGEST)
