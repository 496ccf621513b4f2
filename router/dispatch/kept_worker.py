"""The worker that is kept for a request whose turn it is, and which fits nowhere yet.

    first in line, no room -> the worker where it will fit first is kept -> it has its place
                              |                                            '- or is gone
                              '- who is behind it passes: at other workers, and at this one where
                                 it will be over by then, MAX_PASSED times; a higher class
                                 always, until the one that waits is promoted

The moment is foretold, and put off once where answers get longer than expected: a request that
needs much waits no longer for those of its class that pass (EASY backfilling, Lifka 1995).
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from cluster.deadline import Clock
from router.dispatch.asked import Asked
from router.fleet.member import FleetMember
from router.fleet.need import Need

MAX_PASSED = 16
"""At the kept worker: they may take longer than they were expected to."""


class KeptWorker:
    """For one request. From the event loop only."""

    def __init__(self, asked: Asked, item: FleetMember, clock: Clock) -> None:
        self.asked = asked
        """Whom it is kept for."""
        self._item = item
        self._clock = clock
        self._start_s = clock() + free_in_ms(item, asked.need) / 1000
        self._is_put_off = False
        self._num_passed = 0

    @property
    def is_of_use(self) -> bool:
        """False where it takes no work any more: it is kept in vain."""
        return self._item.takes_work

    def is_one_of(self, items: Iterable[FleetMember]) -> bool:
        """False where it has left these."""
        return self._item in items

    def is_below(self, asked: Asked) -> bool:
        """True where whom it is kept for has a lower class. One that is promoted is below nobody,
        else it would starve."""
        if self.asked.is_promoted:
            return False
        return asked.is_promoted or asked.priority.level < self.asked.priority.level

    @classmethod
    def of(cls, asked: Asked, items: Iterable[FleetMember], clock: Clock) -> KeptWorker | None:
        """The one that will have room first; None: nobody can ever hold it."""
        able = [item for item in items if item.capacity_tokens >= asked.need.num_tokens]
        if not able:
            return None
        return cls(asked, min(able, key=lambda item: free_in_ms(item, asked.need)), clock)

    def admits(self, asked: Asked, item: FleetMember) -> bool:
        """True where one more at that worker does not keep it from whom it is kept for."""
        if item is not self._item or asked is self.asked or self.is_below(asked):
            return True
        if self._num_passed >= MAX_PASSED:
            return False
        now_s = self._clock()
        if now_s >= self._start_s and not self._is_put_off:
            self._is_put_off = True
            self._start_s = now_s + free_in_ms(item, self.asked.need) / 1000
        return now_s + _takes_ms(item, asked.need) / 1000 <= self._start_s

    def passed(self, asked: Asked, item: FleetMember) -> None:
        """Another one has its place at a worker. A higher class is not counted."""
        self._num_passed += item is self._item and not self.is_below(asked)


def free_in_ms(item: FleetMember, need: Need) -> float:
    """Until it has room for that need, by what is expected of its answers."""
    ended_ms, ended = 0.0, Need(num_seqs=0)
    rests = [(_takes_ms(item, part.rest), part.whole) for part in item.room.parts]
    for rest_ms, whole in sorted(rests, key=itemgetter(0)):
        if item.room.would_have(need, ended):
            break
        ended_ms = rest_ms
        ended = Need(
            ended.num_seqs + whole.num_seqs, answer_tokens=ended.num_tokens + whole.num_tokens
        )
    return ended_ms


def _takes_ms(item: FleetMember, need: Need) -> float:
    load = item.load
    return need.prompt_tokens * load.prefill_token_ms + need.num_steps * load.decode_step_ms
