"""When the readers of one worker's tokens are woken: together, and less often where that is much.

    a frame's tokens -> their readers -> flush: all woken at once --> they work --> over
                                           '- the last time took long: RESTS times as long later,
                                              at most MAX_REST_S; frames that come meanwhile join

A loop that has more to write than it can writes more at a time: who is woken later finds tokens of
several steps, and they leave in one event and one write. One that has time wakes at once.
"""

from __future__ import annotations

import asyncio
import time

from cluster.deadline import Clock

BUSY_S = 0.0005
"""Of work for one flush, from which on the next one waits."""
RESTS = 3
"""As long as the work, until the next flush: readers then get a quarter of the loop's time."""
MAX_REST_S = 0.004
"""A reader sees tokens come by hand from some 20 ms on."""

Waiter = asyncio.Future[None]


class Wakes:
    """One per session. All calls from the event loop."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._waiting: list[Waiter] = []
        self._rests_until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._began_s = 0.0

    def add(self, waiter: Waiter | None) -> None:
        """To be woken by the next flush; None: nobody waits."""
        if waiter is not None and not waiter.done():
            self._waiting.append(waiter)

    def flush(self) -> None:
        """A frame has been taken in: now, or in a moment."""
        if not self._waiting or self._timer is not None:
            return
        rest_s = self._rests_until_s - self._clock()
        if rest_s <= 0:
            self._wake_all()
        else:
            self._timer = asyncio.get_running_loop().call_later(rest_s, self._wake_all)

    def _wake_all(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            wake(waiter)
        self._began_s = self._clock()
        asyncio.get_running_loop().call_soon(self._over)  # behind all of them

    def _over(self) -> None:
        now_s = self._clock()
        took_s = now_s - self._began_s
        if took_s >= BUSY_S:
            self._rests_until_s = now_s + min(RESTS * took_s, MAX_REST_S)


def wake(waiter: Waiter | None) -> None:
    """Now; None: nobody waits."""
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
