"""Where the end of a text was seen before, against a search of the whole text."""

from __future__ import annotations

import random

import pytest

from engine.step.drafting.hit_rates import LONGEST
from engine.step.drafting.ngram_index import PART_TOKENS, SEPARATOR, NgramIndex
from engine.step.drafting.run_places import WINDOW_TOKENS


def latest(text: list[int], run: int) -> int | None:
    """Where the last `run` tokens ended before, most recently, by looking everywhere."""
    end = len(text)
    places = [at for at in range(run, end) if text[at - run : at] == text[end - run : end]]
    return max(places, default=None) if end >= run else None


def test_the_place_after_the_latest_run_is_found() -> None:
    index = NgramIndex()
    for token in [1, 2, 3, 4, 9, 1, 2, 7, 1]:
        index.add(token)
    assert index.add(2) == (None, 7)
    assert index.length_at(7) == 2


def test_a_run_of_four_is_found_where_that_of_two_was_seen_later() -> None:
    index = NgramIndex()
    for token in [1, 2, 3, 4, 9, 3, 4, 8, 1, 2, 3]:
        index.add(token)
    assert index.add(4) == (4, 7)
    assert (index.length_at(4), index.length_at(7)) == (4, 2)


@pytest.mark.parametrize("seed", range(20))
def test_random_texts_that_grow_by_ones_and_by_many_are_found_as_by_looking_everywhere(
    seed: int,
) -> None:
    chance, index, text = random.Random(seed), NgramIndex(), list[int]()
    for _ in range(60):
        if chance.random() < 0.2:
            tokens = [chance.randrange(3) for _ in range(chance.randrange(1, 20))]
            index.add_many(tokens)
            text += tokens
        else:
            token = chance.randrange(3)
            text.append(token)
            assert index.add(token) == (latest(text, 4), latest(text, 2))
        assert index.text.tolist() == text


def test_lengths_end_at_the_longest_that_is_told_apart() -> None:
    index = NgramIndex()
    index.add_many([*range(40), *range(40)])
    assert index.length_at(40) == LONGEST
    assert index.length_at(3) == 0


def test_large_token_ids_are_told_apart_and_the_separator_is_none_of_them() -> None:
    index = NgramIndex()
    index.add_many([SEPARATOR - 1, 0, SEPARATOR - 2, 0, SEPARATOR])
    index.add(SEPARATOR - 2)
    assert index.add(0) == (None, 4)


def test_memory_is_bounded_and_the_older_part_is_forgotten() -> None:
    index = NgramIndex()
    for start in range(0, 4 * PART_TOKENS, 1024):
        index.add_many(list(range(start, start + 1024)))
    assert index.num_places <= 4 * (PART_TOKENS + 3)
    index.add(5)
    assert index.add(6) == (None, None)
    late = 4 * PART_TOKENS - 10
    index.add(late)
    assert index.add(late + 1) == (None, late + 2)


def test_long_texts_are_found_as_by_remembering_every_run() -> None:
    """Over the borders where the index grows, and where its oldest places are forgotten."""
    chance, index = random.Random(4), NgramIndex()
    text, last = list[int](), dict[tuple[int, ...], int]()
    num_asked = num_found = 0
    while len(text) < 20_000:
        many = [chance.randrange(60) for _ in range(chance.choice([1, 1, 1, 300]))]
        if len(many) > 1:
            index.add_many(many)
        for token in many:
            text.append(token)
            found = index.add(token) if len(many) == 1 else None
            for run, at in ((4, 0), (2, 1)):
                key = tuple(text[-run:])
                wanted = last.get(key, 0)
                if found is not None and len(key) == run and wanted > len(text) - WINDOW_TOKENS:
                    num_asked += 1
                    num_found += found[at] == (wanted or None)
                last[key] = len(text)
    assert num_asked > 200 and num_found >= 0.995 * num_asked


def test_eight_thousand_tokens_take_a_seventh_of_a_megabyte() -> None:
    chance, index = random.Random(4), NgramIndex()
    for _ in range(4):
        index.add_many([chance.randrange(49_152) for _ in range(2048)])
    assert index.num_bytes < 1_000_000 // 7


@pytest.mark.parametrize("num_common", [0, 1, 3, 200, 20_000])
def test_a_copy_finds_what_the_first_would_and_each_grows_by_itself(num_common: int) -> None:
    chance = random.Random(num_common)
    common = [chance.randrange(40) for _ in range(num_common)]
    first = NgramIndex()
    for start in range(0, num_common, 2048):
        first.add_many(common[start : start + 2048])
    copied = first.copy()
    for index in (first, copied):
        alone = NgramIndex()
        for start in range(0, num_common, 2048):
            alone.add_many(common[start : start + 2048])
        for _ in range(300):
            token = chance.randrange(40)
            assert index.add(token) == alone.add(token)
        assert index.text == alone.text
