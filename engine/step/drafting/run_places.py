"""Places of all runs of one length in a text, the latest of each first: chains by hash.

    heads[hash] -> place -> before[place] -> ...

A chain is followed until the tokens before a place are those of the run. It goes so far and no
further: whoever writes the text may have chosen runs of one hash.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

WINDOW_TOKENS = 16_384
"""Places older than that are forgotten."""
_RING = WINDOW_TOKENS - 1
_MAX_HOPS = 16
_LEAST_BITS, _MOST_BITS = 8, 14
"""Of the number of heads: as many as places at most, a quarter at least."""
_FIRST, _SECOND, _SHIFT = 0x9E3779B1, 0x85EBCA77, 15
_WORD_BITS = 32
_WORD = (1 << _WORD_BITS) - 1

Hashes = npt.NDArray[np.uint32]


def pair_hash(first: int, second: int) -> int:
    """Of two numbers below 2**32: 32 bits, of which the upper ones are mixed well."""
    mixed = (first * _FIRST + second) & _WORD
    return ((mixed ^ (mixed >> _SHIFT)) * _SECOND) & _WORD


def pair_hashes(first: Hashes, second: Hashes) -> Hashes:
    """The same of many."""
    mixed = first * np.uint32(_FIRST) + second
    return (mixed ^ (mixed >> np.uint32(_SHIFT))) * np.uint32(_SECOND)


class RunPlaces:
    """Told of each run as the text grows, in order. A place is the index behind its run."""

    __slots__ = ("_before", "_bits", "_heads", "_length", "_text")

    def __init__(self, text: array[int], length: int) -> None:
        """`text`: is read, and grown by others before each call."""
        self._text, self._length = text, length
        self._bits = _LEAST_BITS
        self._heads = array("i", bytes(4 << _LEAST_BITS))
        self._before = array("i", bytes(4 * length))

    def __len__(self) -> int:
        return len(self._before) - self._length

    @property
    def num_bytes(self) -> int:
        """What it holds."""
        return 4 * (len(self._heads) + len(self._before))

    def copy(self, text: array[int]) -> RunPlaces:
        """Of a text that is the same so far."""
        made = RunPlaces(text, self._length)
        made._bits, made._heads, made._before = self._bits, self._heads[:], self._before[:]
        return made

    def put(self, run_hash: int) -> int | None:
        """The run at the text's end. Returns the latest place where it was before, of those that
        are remembered."""
        text, before = self._text, self._before
        end, slot = len(text), run_hash >> (_WORD_BITS - self._bits)
        head = place = self._heads[slot]
        self._heads[slot] = end
        found = self._find(place, end) if place else None
        if end < WINDOW_TOKENS:
            before.append(head)
        else:
            before[end & _RING] = head
        if end > 4 << self._bits and self._bits < _MOST_BITS:
            self._grow()
        return found

    def put_many(self, hashes: Hashes) -> None:
        """The last runs of the text, in order."""
        end, num = len(self._text), len(hashes)
        if not num:
            return
        missing = min(end + 1, WINDOW_TOKENS) - len(self._before)
        if missing > 0:
            self._before.frombytes(bytes(4 * missing))
        while end > 4 << self._bits and self._bits < _MOST_BITS:
            self._grow(but_last=num)
        places = np.arange(end - num + 1, end + 1, dtype=np.int32)
        self._chain(hashes, places)

    def _find(self, place: int, end: int) -> int | None:
        text, before, length = self._text, self._before, self._length
        last, start = text[-1], end - length
        oldest = max(length, end - WINDOW_TOKENS + 1)
        for _ in range(_MAX_HOPS):
            if place < oldest:
                return None
            if text[place - 1] == last and text[place - length : place] == text[start:]:
                return place
            place = before[place & _RING]
        return None

    def _chain(self, hashes: Hashes, places: npt.NDArray[np.int32]) -> None:
        slots = (hashes >> np.uint32(_WORD_BITS - self._bits)).astype(np.int32)
        order = np.argsort(slots, kind="stable")
        slots, places = slots[order], places[order]
        heads = np.frombuffer(self._heads, dtype=np.int32)
        before = np.frombuffer(self._before, dtype=np.int32)
        is_same = slots[1:] == slots[:-1]
        earlier = heads[slots]
        earlier[1:][is_same] = places[:-1][is_same]
        before[places & _RING] = earlier
        is_last = np.append(~is_same, True)
        heads[slots[is_last]] = places[is_last]

    def _grow(self, but_last: int = 0) -> None:
        """Four times the heads; all that is remembered, but for so many, is told anew."""
        self._bits += 2
        self._heads = array("i", bytes(4 << self._bits))
        end = len(self._text) - but_last
        first = max(self._length, end - WINDOW_TOKENS + 1)
        if end < first:
            return
        ids = np.array(self._text[first - self._length : end], dtype=np.uint32)
        hashes = pair_hashes(ids[:-1], ids[1:])
        if self._length == 4:
            hashes = pair_hashes(hashes[:-2], hashes[2:])
        self._chain(hashes, np.arange(first, end + 1, dtype=np.int32))
