"""Which ranks of the stacks are whose: runs, and where others could lie."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class LoraRuns:
    """Of one bank. Runs never move: what lies there is read by steps."""

    def __init__(self, num_lora_ranks: int) -> None:
        self.num_lora_ranks = num_lora_ranks
        self._taken: dict[int, int] = {}

    def places(self, size: int) -> Iterator[tuple[int, list[int]]]:
        """Where a run of this size may begin, and the beginnings of the runs in its way. Not all
        places: of those left out each has all in its way that one of these has."""
        starts = sorted(self._taken)
        ends = [start + self._taken[start] for start in starts]
        last = self.num_lora_ranks - size
        for first in sorted({0, *ends, *(min(start, last) for start in starts)}):
            if 0 <= first <= last:
                in_way = slice(bisect_right(ends, first), bisect_left(starts, first + size))
                yield first, starts[in_way]

    def take(self, start: int, size: int) -> None:
        """At a place with nothing in its way any more."""
        end = start + size
        assert end <= self.num_lora_ranks
        assert all(end <= first or first + own <= start for first, own in self._taken.items())
        self._taken[start] = size

    def give_back(self, start: int) -> None:
        """The run that begins there is free."""
        del self._taken[start]
