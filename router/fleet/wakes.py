"""When the readers of one worker's tokens get them: together, and less often where that is much.

    a frame's tokens -> their readers -> flush: all get them -> they work --> over
                                           '- the last time took long: RESTS times as long later,
                                              at most MAX_REST_S; frames that come meanwhile join

A loop that has more to write than it can writes more at a time: who gets them later has tokens of
several steps, and they leave in one event and one write. One that has time gives them at once. What
many readers get is given a slice at a time, between which others have their turns of the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

from cluster.deadline import Clock

BUSY_S = 0.0005
"""Of work for one flush, from which on the next one waits."""
RESTS = 3
"""As long as the work, until the next flush: readers then get a quarter of the loop's time."""
MAX_REST_S = 0.004
"""A reader sees tokens come by hand from some 20 ms on."""
SLICE_READERS = 64
"""That get what has come in one turn of the loop: a millisecond of work."""


class TokenReader(Protocol):
    """One request's stream."""

    def hand_on(self) -> None:
        """What has come is given to whoever waits for it, or that one is woken. Raises nothing."""


class Wakes:
    """One per session. All calls from the event loop."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._waiting: list[TokenReader] = []
        self._in_turn = deque[TokenReader]()
        self._rests_until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._began_s = 0.0

    def add(self, reader: TokenReader) -> None:
        """Gets what has come with the next flush. Not twice before it has."""
        self._waiting.append(reader)

    def flush(self) -> None:
        """A frame has been taken in: now, or in a moment."""
        if not self._waiting or self._timer is not None or self._in_turn:
            return
        rest_s = self._rests_until_s - self._clock()
        if rest_s <= 0:
            self._begin()
        else:
            self._timer = asyncio.get_running_loop().call_later(rest_s, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._began_s = self._clock()
        self._in_turn.extend(self._waiting)
        self._waiting.clear()
        self._hand_on()

    def _hand_on(self) -> None:
        """A slice of those whose turn it is; what comes after it, behind whatever it has woken."""
        in_turn = self._in_turn
        for _ in range(min(len(in_turn), SLICE_READERS)):
            in_turn.popleft().hand_on()
        asyncio.get_running_loop().call_soon(self._hand_on if in_turn else self._over)

    def _over(self) -> None:
        now_s = self._clock()
        took_s = now_s - self._began_s
        if took_s >= BUSY_S:
            self._rests_until_s = now_s + min(RESTS * took_s, MAX_REST_S)
        self.flush()
