"""Whose key is this? Asked at both doors before anything else of a request is looked at."""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from cluster.deadline import Clock, Sleep
from cluster.errors import ConfigError, Unauthenticated
from cluster.join_token import bearer_of
from cluster.logs import get_logger
from router.tenants.account import Account
from router.tenants.api_key import KeyRecord, digest_of, id_of
from router.tenants.key_file import read_keys
from router.tenants.limit_store import LimitStore, MemoryLimits
from router.tenants.limits import LimitKind
from router.tenants.priority import Priority
from router.tenants.tenant import ANYBODY, Tenant

LOOK_INTERVAL_S = 1.0
"""So soon a key that was made or revoked is known."""
_NOBODYS_DIGEST = digest_of("")
_log = get_logger("router.keys")


class Keyring(Protocol):
    """From the event loop only."""

    def let_in(self, authorization: str | None) -> Tenant:
        """`authorization`: the header's value, "Bearer KEY". Raises Unauthenticated."""
        ...


class OpenDoor:
    """A Keyring that asks for no key."""

    def let_in(self, authorization: str | None) -> Tenant:
        """Anybody, whatever they say."""
        return ANYBODY


@dataclass(frozen=True, slots=True)
class _Entry:
    record: KeyRecord
    tenant: Tenant


class KnownKeys:
    """A Keyring of the keys that it was told last."""

    def __init__(
        self,
        limits: LimitStore,
        on_refusal: Callable[[Priority, LimitKind], None] = lambda priority, kind: None,
    ) -> None:
        """`limits`: of what keys have spent, whatever becomes of the keys. `on_refusal` hears of
        what class a request was that came up against which limit."""
        self._limits = limits
        self._on_refusal = on_refusal
        self._entries: dict[str, _Entry] = {}

    @property
    def records(self) -> dict[str, KeyRecord]:
        """By id."""
        return {key_id: entry.record for key_id, entry in self._entries.items()}

    def take(self, records: Mapping[str, KeyRecord]) -> None:
        """These are all that there are from now on. What is as it was is kept: of thousands one is
        changed, most often, and all would hold the loop."""
        before = self._entries
        self._entries = {
            key_id: kept
            if (kept := before.get(key_id)) is not None and kept.record == record
            else self._entry_of(record)
            for key_id, record in records.items()
        }

    def let_in(self, authorization: str | None) -> Tenant:
        """See Keyring. What it takes does not tell how much of a key was right."""
        key = bearer_of(authorization)
        entry = self._entries.get(id_of(key))
        digest = _NOBODYS_DIGEST if entry is None else entry.record.digest
        is_right = hmac.compare_digest(digest_of(key), digest)
        if entry is None or not is_right:
            raise Unauthenticated(_refusal(key))
        return entry.tenant

    def _entry_of(self, record: KeyRecord) -> _Entry:
        limits = record.limits(record.id)
        on_refusal = partial(self._on_refusal, record.priority)
        account = Account(limits, self._limits, on_refusal) if limits else None
        terms = (record.models, record.weight, record.priority)
        return _Entry(record, Tenant(record.tenant, *terms, account))


class FileKeyring:
    """The keys of a file, which is looked at again and again while `follow` runs."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        store: LimitStore | None = None,
        on_refusal: Callable[[Priority, LimitKind], None] = lambda priority, kind: None,
    ) -> None:
        """`store`: of what keys have spent; default: this router's own. `on_refusal`: see
        KnownKeys. Raises ConfigError for a file that is not there or is none of keys."""
        self._path = path
        self._sleep = sleep
        self._known = KnownKeys(store or MemoryLimits(clock), on_refusal)
        self._stamp = _stamp_of(path)
        self._known.take(read_keys(path))

    def let_in(self, authorization: str | None) -> Tenant:
        """See Keyring."""
        return self._known.let_in(authorization)

    async def follow(self) -> None:
        """Never returns. A file that cannot be read changes nothing, and is told about once."""
        while True:
            await self._sleep(LOOK_INTERVAL_S)
            stamp = _stamp_of(self._path)
            if stamp != self._stamp:
                self._stamp = stamp
                await self._read_again()

    async def _read_again(self) -> None:
        try:
            keys = await asyncio.to_thread(read_keys, self._path)
        except ConfigError as error:
            _log.error("the keys stay as they were", error=error.message)
            return
        self._known.take(keys)
        _log.info("the file of API keys has changed", num_keys=len(keys))


def _refusal(key: str) -> str:
    if not key:
        return "an API key is needed: send it as Authorization: Bearer KEY"
    return "this API key is not known here; it may have been revoked"


def _stamp_of(path: Path) -> tuple[int, ...]:
    """Another one whenever the file is replaced or written; empty where it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size
