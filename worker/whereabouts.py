"""At which address the fleet reaches this worker.

    one that is named, or listened on     known at once
    all addresses of this machine         the one that faces a router, once its name is known

All routers of a fleet are told the same: of several, the first that there is a way to says it. A
router's name may come up later than a worker: in a compose start, behind a Service without a
ready pod, while a name server is away. It is asked for until it is there, as the router is.
"""

from __future__ import annotations

from cluster.config import WorkerOptions
from cluster.errors import ConfigError
from cluster.logs import get_logger
from cluster.membership.client import FIRST_RETRY_S, LAST_RETRY_S
from cluster.membership.reach import RouterPlace, address_towards, is_wildcard
from cluster.process.backoff import Backoff
from cluster.process.thread_call import in_thread
from cluster.world import World

_log = get_logger("whereabouts")


class Whereabouts:
    """Of one worker. From the event loop only."""

    def __init__(self, options: WorkerOptions, world: World) -> None:
        """Raises ConfigError for what will never be the address of one machine, and for a router's
        address that is none."""
        self._world = world
        self._routers: tuple[RouterPlace, ...] = ()
        advertised = options.peers.advertise_host
        self._host: str | None = advertised or options.host
        if not is_wildcard(self._host):
            return
        if advertised is not None:
            raise ConfigError(
                f"advertise_host is {advertised}; name one address of this machine",
                param="advertise_host",
            )
        if options.router is not None:  # else nobody is told
            self._host, self._routers = None, RouterPlace.parse_all(options.router)

    async def host(self) -> str:
        """Waits until it is known, and is the same ever after."""
        if self._host is None:
            self._host = await self._facing_a_router()
        return self._host

    async def _facing_a_router(self) -> str:
        backoff = Backoff(first_s=FIRST_RETRY_S, longest_s=LAST_RETRY_S)
        told: set[RouterPlace] = set()
        while True:
            for router in self._routers:
                try:
                    return await _address_facing(router)
                except OSError as failure:
                    if router not in told:
                        told.add(router)
                        _tell(router, failure)
            delay_s = backoff.next_delay_s(healthy_s=0.0)
            await self._world.sleep(delay_s * (0.5 + self._world.chance.random() / 2))


async def _address_facing(router: RouterPlace) -> str:
    return await in_thread("router-address", lambda: address_towards(router.host, router.port))


def _tell(router: RouterPlace, failure: OSError) -> None:
    _log.warning(
        "no way to the router's address yet, which says at which address of this machine the fleet "
        "reaches this worker; it is asked for again: where the name is right and stays unknown, "
        "name this worker's own with --advertise-host",
        router=str(router),
        error=str(failure),
    )
