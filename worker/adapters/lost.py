"""Adapters that could not be read, for the first time or again: looked at anew, ever more rarely.

lost -> due at the next look, then after 2, 4 ... MAX_LOOKS more -> offered again, or not wanted

Storage that is back has all of them: after one that was found others that are due follow at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_LOOKS: Final = 64
"""From one attempt to the next, at most: a look is a second."""


@dataclass(slots=True)
class _Lost:
    path: str
    wait: int = 1
    num_left: int = 1


class LostAdapters:
    """Of one worker, by name. No more than it has offered, and has seen in its folder."""

    def __init__(self) -> None:
        self._lost: dict[str, _Lost] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._lost

    def __iter__(self) -> Iterator[str]:
        return iter(self._lost)

    def note(self, name: str, path: str) -> None:
        """Its files are below the root at `path`. One that is known waits as long as it did."""
        self._lost.setdefault(name, _Lost(path))

    def forget(self, name: str, path: str | None = None) -> None:
        """It is offered again, or nobody wants it; of `path` alone, where one is named."""
        if path is None or (name in self and self._lost[name].path == path):
            self._lost.pop(name, None)

    def look(self) -> tuple[str, str] | None:
        """Another look: see `due`. Of those that are not found one alone belongs to a look: storage
        that gives nothing takes each as long as a reading may, and orders and the folder wait
        meanwhile."""
        for lost in self._lost.values():
            lost.num_left -= 1
        return self.due()

    def due(self) -> tuple[str, str] | None:
        """Name and path of the one that has been due for longest, which is then tried."""
        if not self._lost:
            return None
        name, lost = min(self._lost.items(), key=lambda item: item[1].num_left)
        if lost.num_left > 0:
            return None
        lost.wait = lost.num_left = min(2 * lost.wait, MAX_LOOKS)
        return name, lost.path
