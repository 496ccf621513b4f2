"""Whose adapter is read next, of those that wait: owners take turns, each in its own order.

Who asks for many adapters waits for its own, and others for one of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from engine.step.requests.adapter_use import AdapterUse

_MOST = 4096
"""Owners whose last turn is known: who had it before that is as who never had one."""


class AdapterTurns:
    """Of one engine."""

    def __init__(self) -> None:
        self._last: OrderedDict[bytes, int] = OrderedDict()
        """By owner, which of all turns was its last; the earliest first."""
        self._num_turns = 0

    def in_order(self, waiting: Iterable[AdapterUse], under_way: str | None) -> list[AdapterUse]:
        """First whoever waits for the adapter whose turn is under way, then by turns; who came
        first is first of those that are alike."""
        last = self._last
        return sorted(waiting, key=lambda use: (use.digest != under_way, last.get(use.owner, 0)))

    def taken(self, owner: bytes) -> None:
        """An adapter is read for that owner."""
        self._num_turns += 1
        self._last[owner] = self._num_turns
        self._last.move_to_end(owner)
        if len(self._last) > _MOST:
            self._last.popitem(last=False)
