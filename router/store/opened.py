"""A store from an operator's words."""

from __future__ import annotations

from cluster.world import World
from router.store.address import read_address
from router.store.names import StoreNames
from router.store.shared_store import SharedStore


def open_store(url: str, names: StoreNames, world: World) -> SharedStore:
    """Reaches nobody yet: see SharedStore.run. Raises ConfigError."""
    from router.store.redis_link import RedisLink  # a tenth of a second, where a store is named

    return SharedStore(RedisLink(read_address(url)), names, clock=world.clock, sleep=world.sleep)
