"""Where the event loop stands while it stands: its stack, seen from a thread beside it."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from itertools import islice

from cluster.process.background import Background, Loss

LOOK_INTERVAL_S = 0.05
MAX_CALLS = 12
"""The innermost ones."""


class StallWatch:
    """One per loop; `close` at the end."""

    def __init__(self, overdue_s: Callable[[], float], stall_s: float) -> None:
        """Made on the loop's thread. `overdue_s`: for how long the loop has stood, from any thread;
        over `stall_s` its stack is noted, once until it is taken."""
        self._overdue_s = overdue_s
        self._stall_s = stall_s
        self._loop_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._stack: list[str] | None = None
        self._background = Background(_go_on)
        self._background.thread("stall-watch", self._look)

    def take_stack(self) -> list[str]:
        """Where the loop stood in its last stall, innermost call last; empty when nobody saw it:
        the whole process stood, or the interpreter's lock was not given up."""
        stack, self._stack = self._stack, None
        return stack or []

    async def close(self) -> None:
        """The thread ends at its next look; idempotent."""
        self._stopped.set()
        await self._background.close()

    def _look(self) -> None:
        while not self._stopped.wait(LOOK_INTERVAL_S):
            if self._stack is None and self._overdue_s() > self._stall_s:
                self._stack = stack_of(self._loop_thread)


def stack_of(thread: int) -> list[str]:
    """Where a thread, by its ident, stands now: its innermost calls, the innermost last."""
    # the frames alone: `extract_stack` reads every file in them, and keeps it for good
    frames = traceback.walk_stack(sys._current_frames().get(thread))
    calls = [(frame.f_code, line) for frame, line in islice(frames, MAX_CALLS)]
    return [f"{code.co_filename}:{line} {code.co_name}" for code, line in reversed(calls)]


def _go_on(loss: Loss) -> None:
    """Without the watch a stall has no stack; the loss is in the log."""
