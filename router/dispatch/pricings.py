"""How many routes are priced in one look over the line, which is one turn of the router's loop."""

from __future__ import annotations

MAX_PRICED = 2
"""A look. The route of a prompt of 100k tokens takes 20 ms, and a look asks up to 33 requests."""


class Pricings:
    """Of one line. From the event loop only."""

    def __init__(self) -> None:
        self._num_left = MAX_PRICED

    def renew(self) -> None:
        """A look begins."""
        self._num_left = MAX_PRICED

    def take(self) -> bool:
        """True where one more may be priced, and is."""
        self._num_left -= 1
        return self._num_left >= 0
