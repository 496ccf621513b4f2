"""Where `splitserve keys` keeps them: in a file, or in the store that routers share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from cluster.errors import ConfigError
from router.store.address import read_address
from router.store.errors import LinkLost
from router.store.link import StoreCommand, StoreRefusal, StoreReply
from router.store.names import StoreNames
from router.tenants.api_key import KeyRecord
from router.tenants.key_file import changed_keys, read_keys
from router.tenants.stored_keys import StoredKeys

STORE_TIMEOUT_S = 10.0
"""For a whole command."""
Result = TypeVar("Result")


class KeyPlace(Protocol):
    """Its text form names it to an operator, without a password. All raise ConfigError."""

    def read(self) -> Mapping[str, KeyRecord]:
        """All, by id."""
        ...

    def add(self, record: KeyRecord) -> None:
        """A new one."""
        ...

    def remove(self, key_id: str) -> KeyRecord | None:
        """What it was; None: it is not there."""
        ...


def key_place(file: Path | None, store: str | None, namespace: str) -> KeyPlace:
    """The file, where one is named: the store may come from the environment. Raises ConfigError."""
    if file is not None:
        return FilePlace(file)
    if store is not None:
        return StorePlace(store, namespace)
    raise ConfigError("where are the keys? Say --file PATH, or --store redis://HOST as routers do")


class FilePlace:
    """A KeyPlace."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def read(self) -> Mapping[str, KeyRecord]:
        """See KeyPlace."""
        return read_keys(self._path)

    def add(self, record: KeyRecord) -> None:
        """See KeyPlace."""
        with changed_keys(self._path) as keys:
            keys[record.id] = record

    def remove(self, key_id: str) -> KeyRecord | None:
        """See KeyPlace."""
        with changed_keys(self._path) as keys:
            return keys.pop(key_id, None)


class StorePlace:
    """A KeyPlace. Each call has a connection of its own."""

    def __init__(self, url: str, namespace: str) -> None:
        """Raises ConfigError for an address that is none."""
        self._address = read_address(url)
        self._names = StoreNames(namespace, "")

    def __str__(self) -> str:
        return str(self._address)

    def read(self) -> Mapping[str, KeyRecord]:
        """See KeyPlace."""
        return self._with(StoredKeys.read)

    def add(self, record: KeyRecord) -> None:
        """See KeyPlace."""
        self._with(lambda keys: keys.add(record))

    def remove(self, key_id: str) -> KeyRecord | None:
        """See KeyPlace."""

        async def removed(keys: StoredKeys) -> KeyRecord | None:
            record = await keys.find(key_id)
            await keys.remove([key_id])
            return record

        return self._with(removed)

    def _with(self, do: Callable[[StoredKeys], Awaitable[Result]]) -> Result:
        return asyncio.run(self._connected(do))

    async def _connected(self, do: Callable[[StoredKeys], Awaitable[Result]]) -> Result:
        from router.store.redis_link import RedisLink  # a tenth of a second

        link = RedisLink(self._address)

        async def ask(commands: Sequence[StoreCommand]) -> list[StoreReply]:
            return [_accepted(reply) for reply in await link.exchange(commands)]

        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                await link.connect()
                return await do(StoredKeys(self._names, ask))
        except (LinkLost, TimeoutError) as cause:
            reason = str(cause) or "it does not answer"
            raise ConfigError(f"the store at {self} cannot be used: {reason}") from cause
        finally:
            link.close()


def _accepted(reply: StoreReply | StoreRefusal) -> StoreReply:
    """Raises LinkLost for one that is a refusal."""
    if isinstance(reply, StoreRefusal):
        raise LinkLost(reply.message)
    return reply
