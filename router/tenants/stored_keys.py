"""API keys in a store that routers share: what is asked of it, and what it says.

<namespace>:keys           a hash: id -> the record, in JSON; a digest and no key, as in a file
<namespace>:keys:gone      a set: ids that were revoked, and are nobody's wherever else they stand
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
        self._gone_key = names.of_all("keys", "gone")
        self._version_key = names.of_all("keys", "version")
        self._born_key = names.of_all("keys", "born")

    async def stamp(self) -> KeysStamp:
        """Another one whenever keys have changed."""
        [(born, version)] = await self._ask([("MGET", self._born_key, self._version_key)])
        return born, version

    async def read(self) -> dict[str, KeyRecord]:
        """All that are in force; what cannot be read is nobody's key."""
        return (await self.read_both())[0]

    async def read_both(self) -> tuple[dict[str, KeyRecord], set[str]]:
        """Those in force, and the ids of those that were revoked. The ids are read last: a key that
        goes meanwhile is among them."""
        found = await self._all()
        gone = await self._gone()
        return {each.id: each for each in found.values() if each.id not in gone}, gone

    async def _all(self) -> dict[str, KeyRecord]:
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

    async def _gone(self) -> set[str]:
        found: set[str] = set()
        cursor = b"0"
        while True:
            [(cursor, ids)] = await self._ask([("SSCAN", self._gone_key, cursor, "COUNT", SLICE)])
            found.update(each.decode(errors="replace") for each in ids)
            if cursor == b"0":
                return found

    async def find(self, key_id: str) -> KeyRecord | None:
        """One of those in force."""
        asked: list[StoreCommand] = [
            ("HGET", self._key, key_id),
            ("SISMEMBER", self._gone_key, key_id),
        ]
        packed, is_gone = await self._ask(asked)
        return None if packed is None or is_gone else _record_in(packed)

    async def add(self, record: KeyRecord) -> None:
        """Routers know it within a second."""
        packed = msgspec.json.encode(record)
        await self._ask([("HSET", self._key, record.id, packed), ("INCR", self._version_key)])

    async def remove(self, key_ids: Iterable[str]) -> None:
        """Routers refuse them within a second, and no store that lost them has them again."""
        for ids in _slices(list(key_ids)):
            await self._ask(
                [
                    ("SADD", self._gone_key, *ids),
                    ("HDEL", self._key, *ids),
                    ("INCR", self._version_key),
                ]
            )

    async def fill(self, records: Iterable[KeyRecord], born: str) -> None:
        """A store that was never drawn for, or has lost keys: with these, beside what it has. It is
        `born` afterwards, unless it was before."""
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
