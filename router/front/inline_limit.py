"""How much of a text the event loop encodes itself: about a millisecond of it.

Time is taken by tokens, and a byte makes more of them in some texts than in others: a letter or
space is told from all else, and each kind costs what its slowest text costs this tokenizer, here.
Where both stand in turns nothing is a long word, which costs more than either alone.
"""

from __future__ import annotations

import string
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from cluster.deadline import Clock
from router.text.tokenizer import Tokenizer

MAX_INLINE_S = 0.001
MAX_INLINE_BYTES = 4096
"""However fast a tokenizer is: longer texts are not measured."""
NUM_RUNS = 3
"""The best one counts, each with a text of its own: what was seen before may be remembered."""
_LETTERS = string.ascii_letters
_PLAIN_BYTES = _LETTERS.encode() + b" "


@dataclass(frozen=True, slots=True)
class InlineLimit:
    """Of one tokenizer on one machine."""

    plain_byte_s: float = MAX_INLINE_S / MAX_INLINE_BYTES
    """For a letter of ASCII or a space."""
    other_byte_s: float = MAX_INLINE_S / MAX_INLINE_BYTES
    """For each byte of all else, in UTF-8."""
    pair_s: float = 0.0
    """More for each of one kind that may stand beside one of the other."""

    def admits(self, text: str) -> bool:
        """True where encoding it should take no more than MAX_INLINE_S."""
        if len(text) > MAX_INLINE_BYTES:
            return False
        raw = text.encode(errors="replace")
        num_others = len(raw.translate(None, _PLAIN_BYTES))
        num_plain = len(raw) - num_others
        num_pairs = min(num_plain, num_others)
        takes_s = (
            num_plain * self.plain_byte_s + num_others * self.other_byte_s + num_pairs * self.pair_s
        )
        return len(raw) <= MAX_INLINE_BYTES and takes_s <= MAX_INLINE_S


def inline_limit_of(tokenizer: Tokenizer, *, clock: Clock = time.thread_time) -> InlineLimit:
    """Measured with texts of MAX_INLINE_BYTES. Blocking: SmolLM2's takes 0.07 s, and
    comes to 3,600 letters, 1,300 bytes of digits, or 1,200 of both in turns (2-core machine)."""

    def slowest(kinds: tuple[_Author, ...]) -> float:
        return max(_seconds_per_byte(tokenizer, kind, clock) for kind in kinds)

    plain_byte_s, other_byte_s = slowest(_PLAIN), slowest(_OTHERS)
    pair_s = max(0.0, 2 * slowest(_MIXTURES) - plain_byte_s - other_byte_s)
    return InlineLimit(plain_byte_s, other_byte_s, pair_s)


def _seconds_per_byte(tokenizer: Tokenizer, author: _Author, clock: Clock) -> float:
    texts = [author(Random(seed)) for seed in range(NUM_RUNS)]
    return min(_seconds(tokenizer, text, clock) / len(text.encode()) for text in texts)


def _seconds(tokenizer: Tokenizer, text: str, clock: Clock) -> float:
    start_s = clock()
    tokenizer.encode(text)
    return clock() - start_s


_Author = Callable[[Random], str]
"""Writes a text of about MAX_INLINE_BYTES."""


def _words(chance: Random) -> str:
    return "".join(chance.choice(_LETTERS + " " * 8) for _ in range(MAX_INLINE_BYTES))


def _one_word(chance: Random) -> str:
    return "".join(chance.choices(_LETTERS, k=MAX_INLINE_BYTES))


def _single_letters(chance: Random) -> str:
    return " ".join(chance.choices(_LETTERS, k=MAX_INLINE_BYTES // 2))


def _spaces(_: Random) -> str:
    return " " * MAX_INLINE_BYTES


def _digits(chance: Random) -> str:
    return "".join(chance.choices(string.digits, k=MAX_INLINE_BYTES))


def _punctuation(chance: Random) -> str:
    return "".join(chance.choices(string.punctuation, k=MAX_INLINE_BYTES))


def _ideographs(chance: Random) -> str:
    return "".join(chr(chance.randrange(0x4E00, 0xA000)) for _ in range(MAX_INLINE_BYTES // 3))


def _unseen(chance: Random) -> str:
    """Characters that no vocabulary has: a token for each of four bytes."""
    return "".join(chr(chance.randrange(0xE0001, 0xE007F)) for _ in range(MAX_INLINE_BYTES // 4))


def _in_turns(plain: str, others: str) -> _Author:
    """Half of its bytes are of one kind, and half of the other."""

    def author(chance: Random) -> str:
        pairs = range(MAX_INLINE_BYTES // 2)
        return "".join(chance.choice(plain) + chance.choice(others) for _ in pairs)

    return author


_PLAIN: tuple[_Author, ...] = (_words, _one_word, _single_letters, _spaces)
_OTHERS: tuple[_Author, ...] = (_digits, _punctuation, _ideographs, _unseen)
_MIXTURES: tuple[_Author, ...] = tuple(
    _in_turns(plain, others)
    for plain in (_LETTERS, " ")
    for others in (string.digits, string.punctuation)
)
