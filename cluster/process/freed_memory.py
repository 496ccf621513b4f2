"""Memory that a process has freed and its C library keeps: given back to the machine.

    SPARE_BYTES more than there ever were least -> given back, in a thread
    still so many: they are in use, or were     -> tried again, later each time; at once where as
                                                   many have come again

glibc keeps what it has freed between what is in use: 230 to 470 MB after a crowd of large messages.
It does well to, while they come: from pages that are there a message of 8 MB is copied in 2 ms,
and with blocks of the system's for each (M_MMAP_THRESHOLD) the loop was held for up to 40 ms in
place of 20. An engine wants them for good: engine/process/memory_habits.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import psutil

from cluster.deadline import Sleep
from cluster.process.thread_call import in_thread

INTERVAL_S = 10.0
SPARE_BYTES = 64 * 1024 * 1024
"""To give back 127 MB took 12 ms, beside which the loop was late by 0.7 ms."""

MOST_LOOKS = 64
"""Of INTERVAL_S, between two tries: a process that needs more for good pays some 12 ms for each."""


def resident_bytes() -> int:
    """Of this process."""
    return int(psutil.Process().memory_info().rss)


def give_back() -> None:
    """All that is free, down to a page. glibc only; elsewhere nothing happens."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


class FreedMemory:
    """Runs `keep_low` in the background."""

    def __init__(
        self,
        sleep: Sleep,
        *,
        measure: Callable[[], int] = resident_bytes,
        give: Callable[[], None] = give_back,
    ) -> None:
        """`give` is called from a thread."""
        self._sleep = sleep
        self._measure = measure
        self._give = give
        self._lowest_bytes = self._left_bytes = measure()
        self._pause_looks = 1
        self._looks_to_wait = 0

    async def keep_low(self) -> None:
        """For ever."""
        while True:
            await self._sleep(INTERVAL_S)
            if self._is_due(self._measure()):
                await in_thread("freed memory", self._give)
                self._note_what_is_left(self._measure())

    def _is_due(self, resident: int) -> bool:
        if resident <= self._lowest_bytes + SPARE_BYTES:
            self._pause_looks, self._looks_to_wait = 1, 0
            self._lowest_bytes = min(self._lowest_bytes, resident)
            return False
        self._looks_to_wait -= 1
        return self._looks_to_wait <= 0 or resident > self._left_bytes + SPARE_BYTES

    def _note_what_is_left(self, resident: int) -> None:
        """What was in use by a crowd just then may be free soon."""
        self._left_bytes = resident
        self._lowest_bytes = min(self._lowest_bytes, resident)
        self._pause_looks = min(2 * self._pause_looks, MOST_LOOKS)
        self._looks_to_wait = self._pause_looks
