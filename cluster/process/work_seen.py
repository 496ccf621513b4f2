"""Whether a process has worked between two looks at it: for who looks again and again."""

from __future__ import annotations

from collections.abc import Callable

from cluster.process.signs_of_life import SignsOfLife

Look = Callable[[], SignsOfLife | None]
"""At one process, now; None where nobody sees it."""


class WorkSeen:
    """Of one process."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._before: SignsOfLife | None = None

    def look(self) -> bool | None:
        """Whether it has worked since the look before this one; None where nobody sees it."""
        before, self._before = self._before, self._look()
        return None if self._before is None else self._before.show_work(before)

    def forget(self) -> None:
        """It has shown life by itself: the next look is a first one."""
        self._before = None
