"""Who may ask, and how much: the keys of one router, and what is kept of what they have spent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry

from cluster.common_options import IN_STORE
from cluster.config import RouterOptions
from cluster.process.background import Background
from cluster.world import World
from router.store.shared_store import SharedStore
from router.telemetry.class_metrics import LimitMetrics
from router.tenants.keyring import FileKeyring, Keyring, KnownKeys, OpenDoor
from router.tenants.limit_store import LimitStore, MemoryLimits
from router.tenants.shared_limits import SharedLimits
from router.tenants.store_keyring import StoreKeyring


class Tenancy:
    """Made once, before the store runs; `start` once."""

    def __init__(
        self,
        options: RouterOptions,
        world: World,
        registry: CollectorRegistry,
        store: SharedStore | None = None,
        num_routers: Callable[[], int] = lambda: 1,
    ) -> None:
        """`store`: that has limits for all routers, of which there are `num_routers`; None: each
        router has its own. Raises ConfigError for a file of keys that cannot be read."""
        self._world = world
        self._metrics = LimitMetrics(registry)
        self._limits = self._limits_in(store, num_routers)
        self.keyring = self._keyring_of(options, store)

    def why_not_ready(self) -> str | None:
        """None when the keys are known."""
        keyring = self.keyring
        return keyring.why_not_ready() if isinstance(keyring, StoreKeyring) else None

    def start(self, background: Background) -> None:
        """Begins to follow the keys, and to tell the store what was used."""
        if isinstance(self.keyring, FileKeyring | StoreKeyring):
            background.keep("API keys", self.keyring.follow)
        if isinstance(self._limits, SharedLimits):
            background.keep("limits", self._limits.keep_told)

    def _limits_in(self, store: SharedStore | None, num_routers: Callable[[], int]) -> LimitStore:
        if store is None:
            return MemoryLimits(self._world.clock)
        return SharedLimits(
            store,
            num_routers,
            clock=self._world.clock,
            sleep=self._world.sleep,
            on_own=self._metrics.counted_alone,
            on_left=self._metrics.client_left,
        )

    def _keyring_of(self, options: RouterOptions, store: SharedStore | None) -> Keyring:
        if options.api_keys is None:
            return OpenDoor()
        if options.api_keys == IN_STORE and store is not None:
            known = KnownKeys(self._limits, self._metrics.refused)
            return StoreKeyring(store, known, sleep=self._world.sleep)
        return FileKeyring(
            Path(options.api_keys).expanduser(),
            clock=self._world.clock,
            sleep=self._world.sleep,
            store=self._limits,
            on_refusal=self._metrics.refused,
        )
