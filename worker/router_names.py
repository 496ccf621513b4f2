"""The routers of a fleet in which they come and go: one at each address of a name.

A name that nobody knows for a while changes nothing: routers that were found are still there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.logs import get_logger
from cluster.membership.reach import RouterPlace
from cluster.world import World

LOOK_EVERY_S = 5.0
"""How late a new router hears of a worker, at most, beside what the name server holds back."""
_log = get_logger("membership")


class RouterNames:
    """Looks for as long as somebody follows. From the event loop only."""

    def __init__(self, names: Sequence[RouterPlace], world: World) -> None:
        self._world = world
        self._found: dict[RouterPlace, frozenset[RouterPlace]] = {}
        self._names = names
        self._unknown: set[RouterPlace] = set()

    async def follow(self, on_found: Callable[[frozenset[RouterPlace]], None]) -> None:
        """Tells all routers of all names, after every look. Never returns."""
        while True:
            for name in self._names:
                await self._look(name)
            on_found(frozenset().union(*self._found.values()))
            await self._world.sleep(LOOK_EVERY_S)

    async def _look(self, name: RouterPlace) -> None:
        try:
            addresses = await self._world.lookup(name.host)
        except OSError as failure:
            if name not in self._unknown:
                self._unknown.add(name)
                _log.warning("nobody knows the routers' name now", router=str(name), error=failure)
            return
        self._unknown.discard(name)
        self._found[name] = frozenset(RouterPlace(address, name.port) for address in addresses)
