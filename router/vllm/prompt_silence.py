"""For how long a server was waited for, and answered nobody.

    nobody waits --begin--> somebody waits: time counts --answered--> from nothing
         ^------- end of the last ------'

Time in which nobody waits does not count, and what was counted stays over it: requests that each
wait a little see together what none of them sees alone.
"""

from __future__ import annotations


class PromptSilence:
    """All moments are of one clock, in seconds. `end` once for each `begin`."""

    def __init__(self) -> None:
        self._num_waiting = 0
        self._counted_s = 0.0
        self._since_s = 0.0
        """From when on it is not counted yet, while somebody waits."""

    def begin(self, now_s: float) -> None:
        """One more waits."""
        if self._num_waiting == 0:
            self._since_s = now_s
        self._num_waiting += 1

    def end(self, now_s: float) -> None:
        """One waits no more, answered or not."""
        self._counted_s, self._since_s = self.so_far_s(now_s), now_s
        self._num_waiting -= 1

    def broken(self, now_s: float) -> None:
        """Somebody was answered."""
        self._counted_s, self._since_s = 0.0, now_s

    def forgive(self, late_s: float) -> None:
        """So much of it the waiting process stood itself."""
        self._counted_s -= late_s

    def so_far_s(self, now_s: float) -> float:
        """Without an answer to anybody."""
        waiting_s = now_s - self._since_s if self._num_waiting else 0.0
        return max(0.0, self._counted_s + waiting_s)
