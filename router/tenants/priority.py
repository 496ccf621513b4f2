"""Classes of requests: who is served first where not all can be."""

from __future__ import annotations

import enum


class Priority(enum.StrEnum):
    """The first first; a key names one. Few, so that metrics may have them as labels."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"

    @property
    def level(self) -> int:
        """0 is served first."""
        return _LEVELS[self]


_LEVELS = {priority: level for level, priority in enumerate(Priority)}
NUM_LEVELS = len(_LEVELS)
