"""Adapters that are about to get a name. Storage may be asked for that, and take its time; whoever
takes the name away meanwhile waits for none of it.

    open -> done
      '---> revoked: nothing more comes of it
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Naming:
    """That a name stand for what is looked at."""

    name: str
    is_ordered: bool = False
    holds: bool = True


class OpenNamings:
    """Of one worker: by the look under way, and by orders, those that wait for their turn too."""

    def __init__(self) -> None:
        self._open: list[Naming] = []

    @contextmanager
    def open(self, name: str, *, is_ordered: bool = False) -> Iterator[Naming]:
        """Until the block ends."""
        naming = Naming(name, is_ordered)
        self._open.append(naming)
        try:
            yield naming
        finally:
            self._open.remove(naming)

    def names(self, *, unloaded: Container[str]) -> list[str]:
        """That may come of those that are open; of `unloaded` ones only of orders."""
        held = (naming for naming in self._open if naming.holds)
        return [each.name for each in held if each.is_ordered or each.name not in unloaded]

    def revoke(self, name: str) -> bool:
        """All that are open for a name; False where there is none."""
        found = [naming for naming in self._open if naming.name == name and naming.holds]
        for naming in found:
            naming.holds = False
        return bool(found)
