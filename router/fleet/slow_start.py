"""A worker that has just come, or has just failed, gets its share little by little.

    1 request at a time --each success: one more--> 64: no limit       failed: 1 again

A cold worker has an empty queue and no load, so that by price alone it would get everything.
"""

from __future__ import annotations

FIRST_WINDOW = 1
OPEN_AT = 64
"""A worker that answers so many at once is warm; engines run about as many sequences."""


class SlowStart:
    """Of one process. A success of a decode worker is a token of its own, which has gone through
    its whole engine, or the good end of a request that asked for none of them; of a prefill worker
    a prompt whose blocks somebody has read."""

    def __init__(self) -> None:
        self._window = FIRST_WINDOW
        self._is_proven = False

    @property
    def window(self) -> int:
        """Requests that it may have at once; OPEN_AT: there is no limit."""
        return self._window

    @property
    def is_proven(self) -> bool:
        """True when something has succeeded there since it came, or since it last failed."""
        return self._is_proven

    def has_room(self, num_in_flight: int) -> bool:
        """True when one more may be sent beside those."""
        return self._window >= OPEN_AT or num_in_flight < self._window

    def succeeded(self) -> None:
        """One more at a time."""
        self._is_proven = True
        self._window = min(OPEN_AT, self._window + 1)

    def failed(self) -> None:
        """From the beginning."""
        self._window = FIRST_WINDOW
        self._is_proven = False
