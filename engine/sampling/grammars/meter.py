"""What grammars took since the engine's start."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock


@dataclass(slots=True)
class GrammarMeter:
    """Noted by the threads that compile and make masks."""

    num_compiled: int = 0
    compile_s: float = 0.0
    num_masks: int = 0
    mask_s: float = 0.0
    """As long as steps might have had to wait, had nothing run beside them; of masks that are
    watched, of a core."""
    _lock: Lock = field(default_factory=Lock)

    def note_masks(self, num_masks: int, took_s: float) -> None:
        """So many were made, from whichever thread."""
        with self._lock:
            self.num_masks += num_masks
            self.mask_s += took_s

    def note_compiled(self, took_s: float) -> None:
        """One more grammar, from whichever thread."""
        with self._lock:
            self.num_compiled += 1
            self.compile_s += took_s
