"""How much of a text the event loop encodes itself: measured, not known."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.config import RouterOptions
from cluster.models.cache.store import ModelStore
from router.front.inline_limit import (
    MAX_INLINE_BYTES,
    MAX_INLINE_S,
    InlineLimit,
    inline_limit_of,
)
from router.front.model_loading import load_served_model
from tests.cluster.models.conftest import TinyFolder
from tests.router.front_fakes import ByteTokenizer


class TimedTokenizer(ByteTokenizer):
    """Its clock shows what its texts have cost."""

    def __init__(self, cost_s: Callable[[str], float]) -> None:
        self._cost_s = cost_s
        self._now_s = 0.0

    def clock(self) -> float:
        return self._now_s

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        self._now_s += self._cost_s(text)
        return super().encode(text, add_special)

    def limit(self) -> InlineLimit:
        return inline_limit_of(self, clock=self.clock)


def microseconds_each(microseconds: float, letters: str) -> Callable[[str], float]:
    """A tokenizer whose time goes to these characters alone."""
    return lambda text: sum(map(text.count, letters)) * microseconds * 1e-6


def test_the_slower_a_tokenizer_the_less_of_a_text_is_encoded_here() -> None:
    slow = TimedTokenizer(lambda text: len(text.encode()) * 2e-6).limit()
    assert slow.admits("x" * 499) and not slow.admits("x" * 501)
    fast = TimedTokenizer(lambda text: len(text.encode()) * 1e-9).limit()
    assert fast.admits("x" * MAX_INLINE_BYTES) and not fast.admits("x" * (MAX_INLINE_BYTES + 1))


def test_digits_that_cost_a_token_each_do_not_count_as_letters_do() -> None:
    limit = TimedTokenizer(microseconds_each(2, "0123456789")).limit()
    assert limit.admits("word " * 800)
    assert limit.admits("7" * 499) and not limit.admits("7" * 501)
    assert not limit.admits("word " * 400 + "7" * 501)


def test_the_slowest_kind_of_a_text_counts_for_all_of_its_kind() -> None:
    limit = TimedTokenizer(lambda text: 0.002 if text.isspace() else 0.0).limit()
    assert limit.admits("x" * (MAX_INLINE_BYTES // 2 - 1))
    assert not limit.admits("x" * (MAX_INLINE_BYTES // 2 + 1))


WORD_S = 1e-6


def num_words(text: str) -> int:
    """As most tokenizers cut: each digit, letters together, spaces together."""
    return len(re.findall(r"\d| ?[A-Za-z]+| +", text))


@pytest.mark.parametrize("text", ["a1", " 1", "1a", "a2b "], ids=repr)
def test_letters_or_spaces_between_digits_cost_what_they_cost_there(text: str) -> None:
    """A tokenizer whose time goes to words."""
    tokenizer = TimedTokenizer(lambda text: num_words(text) * WORD_S)
    limit, text = tokenizer.limit(), text * (MAX_INLINE_BYTES // len(text))
    num_admitted = max(n for n in range(len(text)) if limit.admits(text[:n]))
    assert 0.5 * MAX_INLINE_S < num_words(text[:num_admitted]) * WORD_S <= MAX_INLINE_S


def test_one_kind_alone_is_admitted_as_far_as_if_nothing_was_mixed() -> None:
    limit = TimedTokenizer(lambda text: num_words(text) * WORD_S).limit()
    pure = replace(limit, pair_s=0.0)
    assert limit.pair_s > 0.0
    for text in ("7" * 4000, "\u65e5" * 1300, "x" * 4000):
        assert [limit.admits(text[:n]) for n in range(len(text))] == [
            pure.admits(text[:n]) for n in range(len(text))
        ]


@pytest.mark.parametrize("character", ["\u65e5", "\U000e0001", "\u00e9"])
def test_bytes_count_and_not_characters(character: str) -> None:
    num_fit = MAX_INLINE_BYTES // len(character.encode())
    assert InlineLimit().admits(character * (num_fit - 1))
    assert not InlineLimit().admits(character * (num_fit + 1))


def test_half_a_character_is_admitted_for_the_tokenizer_to_refuse() -> None:
    assert InlineLimit().admits("\ud800")


def test_the_tokenizer_of_a_served_model_is_measured(tmp_path: Path) -> None:
    card = ModelStore().resolve(str(TinyFolder(tmp_path).write()))
    limit = load_served_model(card, RouterOptions(), lambda: 100).inline
    assert limit != InlineLimit()
    assert limit.plain_byte_s > 0 and limit.other_byte_s > 0
    assert not limit.admits("9" * (int(MAX_INLINE_S / limit.other_byte_s) + 2))
