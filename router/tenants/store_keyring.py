"""The keys of the store that routers share.

nothing read yet -> nobody is let in, and the router is not ready
the store changes -> known within LOOK_INTERVAL_S
the store is away -> the keys stay as they were
it comes back     -> all is read again: an older snapshot may have climbed to the same version
it has lost keys  -> every router adds those it knows, less what was revoked

Only what the store says was revoked is gone: a key that it merely lacks was lost, because it was
emptied, came back from an older snapshot, or was short of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict
from collections.abc import Sequence

from cluster.deadline import Sleep
from cluster.errors import NotReady
from cluster.logs import get_logger
from router.store.errors import StoreAway
from router.store.link import StoreCommand, StoreReply
from router.store.shared_store import SharedStore
from router.store.topics import StoreTopic
from router.tenants.keyring import LOOK_INTERVAL_S, KnownKeys
from router.tenants.stored_keys import KeysStamp, StoredKeys
from router.tenants.tenant import Tenant

FIRST_LOOK_S = 0.05
"""Until the keys are read for the first time."""
READ_WITHIN_S = 1.0
"""One slice; no request waits for it."""
MAX_REVOKED = 10_000
"""Ids that are remembered, lest a store that lost them have the keys again."""
_log = get_logger("router.keys")


class StoreKeyring:
    """A Keyring; `follow` runs beside it."""

    def __init__(
        self, store: SharedStore, known: KnownKeys, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._store = store
        self._known = known
        self._sleep = sleep
        self._keys = StoredKeys(store.names, self._ask)
        self._stamp: KeysStamp | None = None
        """Of what is known; None: nothing was read."""
        self._num_arrivals = 0
        """Of the store."""
        self._read_at_arrival: int | None = None
        """What is known was read after so many."""
        self._revoked: OrderedDict[str, None] = OrderedDict()
        store.watch(self._on_change)

    def let_in(self, authorization: str | None) -> Tenant:
        """See Keyring. Raises NotReady before the keys are read for the first time."""
        if self._stamp is None:
            raise NotReady("the API keys are not read yet: the shared store has not answered")
        return self._known.let_in(authorization)

    def why_not_ready(self) -> str | None:
        """None once the keys were read."""
        return "the API keys are not read yet" if self._stamp is None else None

    async def follow(self) -> None:
        """Never returns."""
        while True:
            with contextlib.suppress(StoreAway):  # which the store itself tells
                await self.look()
            await self._sleep(FIRST_LOOK_S if self._stamp is None else LOOK_INTERVAL_S)

    async def look(self) -> None:
        """Once. Raises StoreAway."""
        arrival = self._num_arrivals
        stamp = await self._keys.stamp()
        if stamp == self._stamp and arrival == self._read_at_arrival:
            return
        if await self._mended(is_drawn=stamp[0] is not None):
            stamp = await self._keys.stamp()
        records, gone = await self._keys.read_both()
        self._revoke(gone)
        if await self._keys.stamp() != stamp:
            return  # it has changed meanwhile: the next look reads it again
        is_news = self._stamp is None or records != self._known.records
        self._stamp, self._read_at_arrival = stamp, arrival
        if is_news:
            self._known.take(records)
            _log.info("the API keys of the shared store have changed", num_keys=len(records))

    async def _mended(self, *, is_drawn: bool) -> bool:
        """True where the store lacked something that is known here: it has that now."""
        records, gone = await self._keys.read_both()
        back = self._revoked.keys() - gone
        if back:
            await self._keys.remove(back)
        in_no_need = records.keys() | gone | self._revoked.keys()
        lost = [each for key_id, each in self._known.records.items() if key_id not in in_no_need]
        if lost or not is_drawn:
            await self._keys.fill(lost, secrets.token_hex(8))
        if lost:
            _log.warning("the shared store had lost API keys: added again", num_keys=len(lost))
        return bool(back or lost or not is_drawn)

    def _revoke(self, gone: set[str]) -> None:
        """At once: what is revoked stays so, whatever else has changed meanwhile."""
        self._remember(gone)
        known = self._known.records
        if not gone.isdisjoint(known):
            self._known.take({each: record for each, record in known.items() if each not in gone})
            _log.info("API keys of the shared store were revoked")

    def _remember(self, gone: set[str]) -> None:
        new = gone - self._revoked.keys()
        self._revoked.update(dict.fromkeys(new))
        while len(self._revoked) > MAX_REVOKED:
            self._revoked.popitem(last=False)

    def _on_change(self, is_there: bool) -> None:
        self._num_arrivals += is_there

    async def _ask(self, commands: Sequence[StoreCommand]) -> list[StoreReply]:
        return await self._store.ask(*commands, topic=StoreTopic.KEYS, within_s=READ_WITHIN_S)
