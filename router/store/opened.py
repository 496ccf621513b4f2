"""A store from an operator's words."""

from __future__ import annotations

from cluster.world import World
from router.store.address import read_address
from router.store.names import StoreNames
from router.store.patience import Patience
from router.store.shared_store import SharedStore


def open_store(url: str, names: StoreNames, world: World, timeout_s: float) -> SharedStore:
    """`timeout_s`: of one call, on the path of a request. Reaches nobody yet: see SharedStore.run.
    Raises ConfigError."""
    from router.store.redis_link import RedisLink  # a tenth of a second, where a store is named

    patience = Patience.of_calls(timeout_s)
    link = RedisLink(read_address(url))
    return SharedStore(link, names, patience=patience, clock=world.clock, sleep=world.sleep)
