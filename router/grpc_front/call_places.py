"""How many calls of one kind may be open at once, and that no caller has them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from router.front.caller import Caller
from router.front.fair_turns import CallerCounts, has_place_for
from router.front.refusals import crowded


class CallPlaces:
    """From the event loop's thread."""

    def __init__(self, num_places: int) -> None:
        self._num_places = num_places
        self._taken = CallerCounts()

    @contextmanager
    def taken_by(self, caller: Caller) -> Iterator[None]:
        """One place, until the block ends. Raises NotReady where there is none for the caller."""
        if not has_place_for(caller, self._taken, self._num_places):
            raise crowded("calls")
        self._taken.add(caller)
        try:
            yield
        finally:
            self._taken.remove(caller)
