"""What prompt lookup guesses: the rest of what was there before, or was predicted."""

from __future__ import annotations

import random

import pytest

from engine.contract.draft_numbers import DrafterKind
from engine.step.drafters.lookup import prompt_lookup
from engine.step.drafting.draft import Draft
from engine.step.drafting.hit_rates import SharedRates
from engine.step.drafting.ngram_index import PART_TOKENS, NgramIndex
from engine.step.drafting.predicted_text import TURN_TOKENS, PredictedText, TextTurns
from engine.step.drafting.prompt_lookup import LEAST_CHANCE, PromptLookup


def lookup(num_prompt: int, prediction: list[int] | None = None) -> PromptLookup:
    turns = TextTurns()
    predicted = PredictedText(prediction, turns) if prediction else None
    return PromptLookup(SharedRates(), num_prompt, predicted, turns)


def guess(guesser: PromptLookup, tokens: list[int], most: int = 8) -> list[int]:
    draft = guesser.guess(tokens, most)
    return [] if draft is None else draft.token_ids


def test_nothing_is_guessed_of_a_text_that_does_not_repeat() -> None:
    assert lookup(20).guess(list(range(20)), 8) is None


def test_a_run_that_repeats_is_guessed_to_go_on_as_before() -> None:
    prompt = [*range(100, 120), 7, 8]
    guesser = lookup(len(prompt))
    assert guess(guesser, prompt, 4) == []
    assert guess(guesser, [*prompt, 100, 101, 102, 103], 4) == [104, 105, 106, 107]


def test_chances_fall_and_are_worth_a_row() -> None:
    prompt = [*range(100, 140)]
    draft = lookup(len(prompt)).guess([*prompt, *range(100, 112)], 16)
    assert draft is not None
    assert draft.chances == sorted(draft.chances, reverse=True)
    assert min(draft.chances) >= LEAST_CHANCE
    assert len(draft.chances) == len(draft.token_ids)


def test_what_was_copied_right_is_guessed_further_and_what_was_not_is_looked_for_anew() -> None:
    prompt = [*range(100, 130), *range(200, 230)]
    guesser = lookup(len(prompt))
    known = [*prompt, 100, 101, 102]
    assert guess(guesser, known, 1) == [103]
    known += [103, 104, 210, 211]
    assert guess(guesser, known, 2) == [212, 213]


def test_a_loop_goes_round() -> None:
    prompt = [50, 1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert guess(lookup(1), prompt, 7)[:4] == [1, 2, 3, 1]


def test_an_answer_begins_as_it_was_predicted() -> None:
    guesser = lookup(3, [11, 12, 13, 14])
    draft = guesser.guess([1, 2, 3, 11], 8)
    chances = draft.chances if draft else []
    assert draft == Draft([12, 13, 14], chances, DrafterKind.NGRAM, 3)


def test_a_prediction_is_gone_on_with_after_a_change_and_ends_where_it_ends() -> None:
    guesser = lookup(2, [11, 12, 13, 14, 15, 16])
    assert guess(guesser, [1, 2, 11]) == [12, 13, 14, 15, 16]
    assert guess(guesser, [1, 2, 11, 99]) == []
    assert guess(guesser, [1, 2, 11, 99, 13, 14])[:1] == [15]
    assert guess(guesser, [1, 2, 11, 99, 13, 14, 15, 16]) == []


def test_tokens_of_the_prompt_are_not_counted_as_predicted() -> None:
    prompt = [*range(100, 120)]
    guesser = lookup(len(prompt), [11, 12])
    draft = guesser.guess([*prompt, 103, 104, 105, 106], 2)
    assert draft is not None
    assert (draft.token_ids, draft.num_predicted) == ([107, 108], 0)


def test_a_long_prompt_is_taken_over_several_calls_and_its_end_is_what_counts() -> None:
    prompt = [i % 50_000 for i in range(PART_TOKENS + 5000)]
    known = [*prompt, *prompt[-50:-46]]
    guesser = lookup(len(prompt))
    calls = 1
    while not (found := guess(guesser, known, 3)):
        calls += 1
        assert calls < 10
    assert found == prompt[-46:-43]
    assert calls > 2


def test_a_text_that_has_never_matched_is_not_guessed_at_for_a_chance_match() -> None:
    """Two tokens that come again by chance: after some of that nobody is guessed for."""
    chance = random.Random(3)
    guesser = lookup(1)
    known = [chance.randrange(30) for _ in range(2000)]
    num_drafts = 0
    for end in range(1, 2000):
        num_drafts += guesser.guess(known[:end], 4) is not None
    assert num_drafts < 400


@pytest.mark.parametrize("seed", range(10))
def test_guesses_are_the_same_however_the_text_came(seed: int) -> None:
    chance = random.Random(seed)
    known = [chance.randrange(4) for _ in range(60)]
    step_by_step, at_once = lookup(10), lookup(10)
    for end in range(10, 60):
        step_by_step.guess(known[:end], 5)
    assert step_by_step.guess(known, 5) == at_once.guess(known, 5)


def test_a_long_prediction_is_taken_over_several_calls_and_then_followed() -> None:
    drafter, prediction = lookup(3, list(range(100, 100 + PART_TOKENS))), range(100, 110)
    for num_told in range(2048, PART_TOKENS + 1, 2048):
        assert guess(drafter, [1, 2, 3, *prediction]) == []
        assert drafter._predicted is not None
        assert len(drafter._predicted._index.text) == num_told
    assert guess(drafter, [1, 2, 3, *prediction], 3) == [110, 111, 112]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens that were taken into indexes many at a time, of each call."""
    noted, add_many = list[int](), NgramIndex.add_many

    def notes(self: NgramIndex, tokens: list[int]) -> None:
        noted.append(len(tokens))
        add_many(self, tokens)

    monkeypatch.setattr(NgramIndex, "add_many", notes)
    return noted


def test_a_prediction_is_taken_in_once_for_all_choices_of_its_request(taken: list[int]) -> None:
    turns = TextTurns()
    make, prediction = prompt_lookup(turns), list(range(100, 100 + PART_TOKENS))
    guessers = [make(3, prediction) for _ in range(16)]
    known = [[1, 2, 3, *range(100, 104 + number)] for number in range(16)]
    found = list[list[int]]()
    for _ in range(6):
        turns.begin()
        before = sum(taken)
        drafts = [guesser.guess(tokens, 4) for guesser, tokens in zip(guessers, known, strict=True)]
        assert sum(taken) - before <= TURN_TOKENS
        found = [[] if draft is None else draft.token_ids for draft in drafts]
    assert found == [list(range(104 + number, 108 + number)) for number in range(16)]
    assert sum(taken) == PART_TOKENS + 1 + 16 * 3


def test_all_long_prompts_of_a_step_together_are_taken_in_within_one_turn(taken: list[int]) -> None:
    turns = TextTurns()
    make, known = prompt_lookup(turns), [*range(5000), 7, 8, 9, 10]
    guessers, drafts = [make(5000, []) for _ in range(4)], list[Draft | None]()
    for _ in range(4 * 5000 // TURN_TOKENS + 1):
        assert not any(drafts[-1:])
        turns.begin()
        before = sum(taken)
        drafts = [guesser.guess(known, 3) for guesser in guessers]
        assert sum(taken) - before <= TURN_TOKENS
    assert [draft and draft.token_ids for draft in drafts] == [[11, 12, 13]] * 4
    assert sum(taken) == 4 * 5000
