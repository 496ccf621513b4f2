"""How long answers get, as far as recent ones tell."""

from __future__ import annotations

import random

from cluster.generation import Usage
from router.pricing.answer_lengths import FIRST_GUESS_TOKENS, AnswerLengths


def learnt(lengths: list[int], num_choices: int = 1) -> AnswerLengths:
    known = AnswerLengths()
    for length in lengths:
        known.learn(Usage(10, length * num_choices, 0), num_choices)
    return known


def test_few_answers_are_longer_than_the_expected_length() -> None:
    chance = random.Random(3)
    lengths = [int(chance.expovariate(1 / 200)) + 1 for _ in range(2000)]
    expected = learnt(lengths).expected(100_000)
    assert 0.86 <= sum(length <= expected for length in lengths) / 2000 <= 0.97


def test_nothing_is_expected_beyond_what_was_asked_for() -> None:
    assert AnswerLengths().expected(7) == 7
    assert AnswerLengths().expected(100_000) == FIRST_GUESS_TOKENS
    assert learnt([100] * 100).expected(20) == 20


def test_choices_are_counted_one_by_one() -> None:
    assert learnt([64] * 80, num_choices=4).expected(1000) == 64


def test_a_change_is_believed_within_a_thousand_answers() -> None:
    assert learnt([1000] * 500 + [10] * 1500).expected(100_000) <= 16
    assert learnt([10] * 500 + [1000] * 400).expected(100_000) >= 1000
