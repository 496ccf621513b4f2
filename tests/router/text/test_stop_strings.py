"""Stop strings do not depend on how the text was cut into pieces."""

from __future__ import annotations

import random
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from router.text.stop_strings import StopAutomaton, StopMatcher

TEXT = st.text(alphabet="ab", max_size=30)
STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4)


def searched_at_once(text: str, stops: list[str]) -> tuple[str, bool]:
    """The definition: the first end of any stop string, and of those the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


def in_pieces(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    matcher = StopMatcher(StopAutomaton(stops))
    shown = ""
    for piece in pieces:
        shown += matcher.feed(piece)
        if matcher.matched:
            return shown, True
    return shown + matcher.flush(), False


@settings(max_examples=600, deadline=None)
@given(TEXT, STOPS, st.lists(st.integers(0, 30), max_size=8))
def test_any_cut_shows_the_same_text_as_searching_the_whole(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    assert in_pieces(pieces, stops) == searched_at_once(text, stops)


@settings(max_examples=300, deadline=None)
@given(TEXT, STOPS)
def test_what_is_shown_early_is_never_taken_back(text: str, stops: list[str]) -> None:
    final, _ = searched_at_once(text, stops)
    matcher = StopMatcher(StopAutomaton(stops))
    shown = ""
    for char in text:
        shown += matcher.feed(char)
        assert final.startswith(shown)
        if matcher.matched:
            break


def test_text_that_cannot_become_a_stop_string_is_shown_at_once() -> None:
    matcher = StopMatcher(StopAutomaton(["END"]))
    assert matcher.feed("hello E") == "hello "
    assert matcher.feed("N") == ""
    assert matcher.feed("x") == "ENx"


def test_of_two_stop_strings_with_one_end_the_longer_counts() -> None:
    matcher = StopMatcher(StopAutomaton(["c", "abc"]))
    assert matcher.feed("xab") == "x"
    assert matcher.feed("cd") == ""
    assert matcher.matched


def test_sixteen_long_repetitive_stop_strings_cost_no_more_than_linear_time() -> None:
    automaton = StopAutomaton(["a" * (240 + i) + "b" for i in range(16)])
    matcher = StopMatcher(automaton)
    shown = sum(len(matcher.feed("a")) for _ in range(20_000))
    assert shown == 20_000 - 255
    assert not matcher.matched


def test_the_most_that_a_body_may_ask_for_takes_little_memory() -> None:
    chance = random.Random(7)
    stops = ["".join(chance.choices("abcdefgh", k=256)) for _ in range(4)]
    tracemalloc.start()
    try:
        automaton = StopAutomaton(stops)
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(automaton.depth) == 256
    assert size_bytes < 200_000
