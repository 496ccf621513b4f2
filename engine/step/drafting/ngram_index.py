"""Where the last tokens of a text that grows were seen before: their most recent place.

    text    ... the cat sat on ... the cat | ?
                        ^ place             end

Runs of four tokens are looked for first, then runs of two; a run that is found is followed back to
its whole length. A token costs about a microsecond. Places are kept for the last 8192 to 16384
tokens: some 200 bytes each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.step.drafting.hit_rates import LONGEST

SEPARATOR = (1 << 21) - 1
"""Between two texts: larger than any token id. No run that is followed goes over it."""
_BITS = 21
_PAIR_BITS = 2 * _BITS
_PAIR_MASK = (1 << _PAIR_BITS) - 1
_TOKEN_MASK = (1 << _BITS) - 1
PART_TOKENS = 8192
"""After as many the older of two parts is forgotten."""


class NgramIndex:
    """`text` is to be read; it grows by `add` and `add_many` only."""

    __slots__ = ("_fours", "_last", "_num_in_part", "_old_fours", "_old_pairs", "_pairs", "text")

    def __init__(self) -> None:
        self.text: list[int] = []
        self._pairs: dict[int, int] = {}
        self._fours: dict[int, int] = {}
        self._old_pairs: dict[int, int] = {}
        self._old_fours: dict[int, int] = {}
        self._num_in_part = 0
        self._last = 0
        """The last four tokens, packed."""

    @property
    def num_places(self) -> int:
        """Runs that are remembered."""
        kept = (self._pairs, self._fours, self._old_pairs, self._old_fours)
        return sum(map(len, kept))

    def add(self, token: int) -> tuple[int | None, int | None]:
        """One more token. Returns where the runs of four and of two that end with it were followed
        by another token before: indices into `text`."""
        text = self.text
        text.append(token)
        end = len(text)
        four = self._last = ((self._last & ((1 << 3 * _BITS) - 1)) << _BITS) | token
        pair = four & _PAIR_MASK
        found_pair, found_four = self._pairs.get(pair), self._fours.get(four)
        if self._old_pairs:
            found_pair = found_pair or self._old_pairs.get(pair)
            found_four = found_four or self._old_fours.get(four)
        if end >= 2:
            self._pairs[pair] = end
        if end >= 4:
            self._fours[four] = end
        self._num_in_part += 1
        if self._num_in_part >= PART_TOKENS:
            self._begin_part()
        return found_four, found_pair

    def add_many(self, tokens: Sequence[int]) -> None:
        """As `add` of each, at a tenth of the price; at most PART_TOKENS."""
        if self._num_in_part + len(tokens) > PART_TOKENS:
            self._begin_part()
        first = max(0, len(self.text) - 3)
        self.text += tokens
        self._num_in_part += len(tokens)
        ids = np.array(self.text[first:], dtype=np.int64)
        pairs: list[int] = ((ids[:-1] << _BITS) | ids[1:]).tolist()
        fours = [(a << _PAIR_BITS) | b for a, b in zip(pairs[:-2], pairs[2:], strict=True)]
        self._pairs.update(zip(pairs, range(first + 2, first + 2 + len(pairs)), strict=True))
        self._fours.update(zip(fours, range(first + 4, first + 4 + len(fours)), strict=True))
        self._last = 0
        for token in self.text[-4:]:
            self._last = (self._last << _BITS) | token

    def length_at(self, place: int) -> int:
        """How many tokens before `place` are those of the end of the text; at most LONGEST."""
        text, end = self.text, len(self.text)
        most = min(LONGEST, place)
        for back in range(1, most + 1):
            if text[place - back] != text[end - back]:
                return back - 1
        return most

    def _begin_part(self) -> None:
        self._old_pairs, self._old_fours = self._pairs, self._fours
        self._pairs, self._fours, self._num_in_part = {}, {}, 0
