"""API keys in a store that routers share: what is asked of it, and what it says.

<namespace>:keys           a hash: id -> the record, in JSON; a digest and no key, as in a file
<namespace>:keys:version   counts changes: whoever makes one adds one to it afterwards
<namespace>:keys:born      drawn by the routers: another one means that the store was emptied
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from router.store.link import StoreCommand, StoreReply
from router.store.names import StoreNames
from router.tenants.api_key import KeyRecord

SLICE = 200
"""Keys that are read or written at once: a millisecond of a router's loop."""

AskStore = Callable[[Sequence[StoreCommand]], Awaitable[list[StoreReply]]]
"""One round trip; it raises what its owner says."""
KeysStamp = tuple[bytes | None, bytes | None]
"""`born` and `version`."""


class StoredKeys:
    """Of one namespace; it keeps nothing itself."""

    def __init__(self, names: StoreNames, ask: AskStore) -> None:
        self._ask = ask
        self._key = names.of_all("keys")
        self._version_key = names.of_all("keys", "version")
        self._born_key = names.of_all("keys", "born")

    async def stamp(self) -> KeysStamp:
        """Another one whenever keys have changed."""
        [(born, version)] = await self._ask([("MGET", self._born_key, self._version_key)])
        return born, version

    async def read(self) -> dict[str, KeyRecord]:
        """All of them; what cannot be read is nobody's key."""
        found: dict[str, KeyRecord] = {}
        cursor = b"0"
        while True:
            [(cursor, words)] = await self._ask([("HSCAN", self._key, cursor, "COUNT", SLICE)])
            for packed in words[1::2]:
                record = _record_in(packed)
                if record is not None:
                    found[record.id] = record
            if cursor == b"0":
                return found

    async def find(self, key_id: str) -> KeyRecord | None:
        """One of them."""
        [packed] = await self._ask([("HGET", self._key, key_id)])
        return None if packed is None else _record_in(packed)

    async def add(self, record: KeyRecord) -> None:
        """Routers know it within a second."""
        packed = msgspec.json.encode(record)
        await self._ask([("HSET", self._key, record.id, packed), ("INCR", self._version_key)])

    async def remove(self, key_ids: Iterable[str]) -> None:
        """Routers refuse them within a second."""
        for ids in _slices(list(key_ids)):
            await self._ask([("HDEL", self._key, *ids), ("INCR", self._version_key)])

    async def fill(self, records: Iterable[KeyRecord], born: str) -> None:
        """A store that was never drawn for, or was emptied: with these, beside what it has. It is
        `born` only then, so that nobody takes a half of it for the whole."""
        for some in _slices(list(records)):
            await self._ask(
                [("HSETNX", self._key, each.id, msgspec.json.encode(each)) for each in some]
            )
        await self._ask([("SET", self._born_key, born, "NX"), ("INCR", self._version_key)])


def _slices(things: list[KeyRecord] | list[str]) -> Iterable[list]:  # type: ignore[type-arg]
    return (things[at : at + SLICE] for at in range(0, len(things), SLICE))


def _record_in(packed: bytes) -> KeyRecord | None:
    try:
        record = msgspec.json.decode(packed, type=KeyRecord)
    except (msgspec.DecodeError, ValueError):
        return None
    return record if record.tenant and record.fault is None else None
