"""The routers of a fleet, as a planner asks them: those that were named, and those behind names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cluster.dial.dialer import OperatorLink
from cluster.errors import SplitserveError, WorkerLost
from cluster.logs import get_logger
from cluster.membership.reach import RouterPlace
from cluster.world import World

Answer = TypeVar("Answer")
_log = get_logger("planner")


class Routers:
    """From one event loop; `close` at the end."""

    def __init__(self, named: str, world: World) -> None:
        """`named`: as the option --router. Raises ConfigError."""
        self._places = RouterPlace.parse_all(named)
        self._named = named
        self._world = world
        self._links: dict[str, OperatorLink] = {}
        self._found: dict[RouterPlace, frozenset[str]] = {}
        self._silent: frozenset[str] = frozenset()

    async def each(self, ask: Callable[[OperatorLink], Awaitable[Answer]]) -> list[Answer]:
        """What those answer that do. Raises WorkerLost where none does."""
        links = await self._now()
        answers = await asyncio.gather(*map(ask, links.values()), return_exceptions=True)
        failed = {
            address: answer
            for address, answer in zip(links, answers, strict=True)
            if isinstance(answer, BaseException)
        }
        for failure in failed.values():
            if not isinstance(failure, SplitserveError):
                raise failure
        self._tell(failed)
        heard = [answer for answer in answers if not isinstance(answer, BaseException)]
        if not heard:
            why = "; ".join(str(failure) for failure in failed.values()) or "the name is unknown"
            raise WorkerLost(f"no router answers at {self._named}: {why}")
        return heard

    async def close(self) -> None:
        """Idempotent."""
        links, self._links = self._links, {}
        for link in links.values():
            await link.close()

    async def _now(self) -> dict[str, OperatorLink]:
        """A link to each that there is; of those that are gone none is kept."""
        addresses = [address for place in self._places for address in await self._at(place)]
        for address in self._links.keys() - set(addresses):
            await self._links.pop(address).close()
        for address in addresses:
            if address not in self._links:
                self._links[address] = self._world.dialer.operator(address)
        return dict(self._links)

    async def _at(self, place: RouterPlace) -> frozenset[str]:
        """A name that nobody knows for a while stands for what it stood for."""
        if not place.is_each_address:
            return frozenset([str(place)])
        try:
            hosts = await self._world.lookup(place.host)
        except OSError:
            return self._found.get(place, frozenset())
        self._found[place] = frozenset(f"{host}:{place.port}" for host in hosts)
        return self._found[place]

    def _tell(self, failed: dict[str, BaseException]) -> None:
        for address in failed.keys() - self._silent:
            _log.warning("a router does not answer", router=address, error=str(failed[address]))
        self._silent = frozenset(failed)
