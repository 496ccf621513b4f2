"""Whether the folder of adapters itself can be read: another thing than what lies there."""

from __future__ import annotations

from typing import Final

from cluster.deadline import Clock
from cluster.logs import get_logger

FIRST_LIMIT_S: Final = 60.0
"""So long whoever asks may hope that its adapter lies there, though nobody has seen that: after it
the folder is a fault of its own, and names that nobody has seen stand for nothing."""
_log = get_logger("worker.adapters")


class RootReadings:
    """Of one worker, from its start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = clock()
        self._was_read = False
        self._unread_since_s: float | None = None
        """None: the last look has read it."""

    @property
    def first_is_due(self) -> bool:
        """Nothing is known of the folder yet, and may be soon."""
        return not self._was_read and self._clock() - self._began_s < FIRST_LIMIT_S

    @property
    def unread_s(self) -> float:
        """For how long it could not be read; 0: it could."""
        since_s = self._unread_since_s
        return 0.0 if since_s is None else self._clock() - since_s

    def note(self, *, is_read: bool, cause: str = "") -> None:
        """A look is done. Said when it changes, and not with every look."""
        self._was_read = self._was_read or is_read
        was_unread = self._unread_since_s is not None
        if not is_read and not was_unread:
            _log.error("the folder of adapters cannot be read; it is tried again", cause=cause)
            self._unread_since_s = self._clock()
        elif is_read and was_unread:
            _log.info("the folder of adapters can be read again")
            self._unread_since_s = None
