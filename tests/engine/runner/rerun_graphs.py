"""Graphs without a GPU."""

from __future__ import annotations

from collections.abc import Callable


class RerunGraphs:
    """A GraphBackend that repeats the work on the same memory, in Python."""

    def __init__(self) -> None:
        self.num_captured = 0
        self.num_replayed = 0

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """See GraphBackend."""
        work()
        self.num_captured += 1

        def replay() -> None:
            self.num_replayed += 1
            work()

        return replay
