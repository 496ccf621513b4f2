"""Whether a rank's loop lives, as a thread beside it sees: for a conductor that cannot look itself.

it has turned                        by the sign that it sets
it waits for other ranks             by its collective; they have a watch of their own
it works                             a long step, as the kernel sees it
none of these                        it stands still, though this thread turns
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from cluster.process.signs_of_life import SignsOfLife
from cluster.process.work_seen import Look, WorkSeen


def look_beside() -> SignsOfLife | None:
    """At the own process, but for the thread that asks."""
    return SignsOfLife.of(os.getpid(), but=threading.get_native_id())


class OwnLife:
    """Of one rank; of the thread that tells it."""

    def __init__(
        self, look: Look = look_beside, *, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._work, self._clock_ns = WorkSeen(look), clock_ns
        self._turned_ns = self._alive_ns = 0

    def last_ns(self, turned_ns: int, *, waits: bool = False) -> int:
        """When it has last shown life; `turned_ns`: its last turn; `waits`: for other ranks."""
        if waits or turned_ns != self._turned_ns:
            self._turned_ns = turned_ns
            self._work.forget()
        elif not self._work.look():
            return self._alive_ns
        self._alive_ns = self._clock_ns()
        return self._alive_ns
