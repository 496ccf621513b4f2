"""Where the last tokens of a text that grows were seen before: their most recent place.

    text    ... the cat sat on ... the cat | ?
                        ^ place             end

Runs of four tokens are looked for first, then runs of two; a run that is found is followed back to
its whole length. A token costs about a microsecond and twenty to thirty bytes; places are kept for
the last 16384 tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from engine.step.drafting.hit_rates import LONGEST
from engine.step.drafting.run_places import WINDOW_TOKENS, RunPlaces, pair_hash, pair_hashes

SEPARATOR = (1 << 21) - 1
"""Between two texts: larger than any token id. No run that is followed goes over it."""
PART_TOKENS = WINDOW_TOKENS // 2
"""Of a prompt, or of a prediction: both together are remembered."""


class NgramIndex:
    """`text` is to be read; it grows by `add` and `add_many` only."""

    __slots__ = ("_before", "_fours", "_last", "_pairs", "text")

    def __init__(self) -> None:
        self.text = array("i")
        self._pairs, self._fours = RunPlaces(self.text, 2), RunPlaces(self.text, 4)
        self._last = self._before = 0
        """Hashes of the last two tokens, and of the last but one."""

    @property
    def num_places(self) -> int:
        """Runs that are remembered."""
        return len(self._pairs) + len(self._fours)

    @property
    def num_bytes(self) -> int:
        """What it holds, but for a few hundred."""
        text_bytes = len(self.text) * self.text.itemsize
        return text_bytes + self._pairs.num_bytes + self._fours.num_bytes

    def copy(self) -> NgramIndex:
        """Which grows by itself."""
        made = NgramIndex()
        made.text = self.text[:]
        made._pairs, made._fours = self._pairs.copy(made.text), self._fours.copy(made.text)
        made._last, made._before = self._last, self._before
        return made

    def add(self, token: int) -> tuple[int | None, int | None]:
        """One more token. Returns where the runs of four and of two that end with it were followed
        by another token before: indices into `text`."""
        text = self.text
        text.append(token)
        if len(text) < 2:
            return None, None
        pair = pair_hash(text[-2], token)
        before, self._before, self._last = self._before, self._last, pair
        found_pair = self._pairs.put(pair)
        found_four = self._fours.put(pair_hash(before, pair)) if len(text) >= 4 else None
        return found_four, found_pair

    def add_many(self, tokens: Sequence[int]) -> None:
        """As `add` of each, at a tenth of the price; at most PART_TOKENS."""
        old = len(self.text)
        self.text.extend(tokens)
        first = max(0, old - 3)
        ids = np.array(self.text[first:], dtype=np.uint32)
        hashes = pair_hashes(ids[:-1], ids[1:])  # of the pairs that end at first + 2 and after
        fours = pair_hashes(hashes[:-2], hashes[2:])  # ... at first + 4 and after
        self._pairs.put_many(hashes[max(0, old - 1 - first) :])
        self._fours.put_many(fours[max(0, old - 3 - first) :])
        if len(hashes):
            self._before = int(hashes[-2]) if len(hashes) > 1 else self._last
            self._last = int(hashes[-1])

    def length_at(self, place: int) -> int:
        """How many tokens before `place` are those of the end of the text; at most LONGEST."""
        text, end = self.text, len(self.text)
        most = min(LONGEST, place)
        for back in range(1, most + 1):
            if text[place - back] != text[end - back]:
                return back - 1
        return most
