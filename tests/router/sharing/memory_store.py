"""A store in memory that several routers of one test share; it answers as Redis does."""

from __future__ import annotations

from cluster.deadline import Clock
from router.store.errors import StoreAway
from router.store.link import StoreCommand, StoreReply
from router.store.names import StoreNames
from router.store.topics import StoreTopic


class MemoryStore:
    """Of all routers; the commands that `router.sharing` sends, and no others."""

    def __init__(self, clock: Clock) -> None:
        self.names = StoreNames("tests", "tiny")
        self.is_away = False
        self.refused: set[StoreTopic] = set()
        self.values: dict[str, tuple[bytes, float]] = {}
        self.sets: dict[str, set[bytes]] = {}
        self.streams: dict[str, list[tuple[int, list[bytes]]]] = {}
        self._clock = clock

    @property
    def is_there(self) -> bool:
        return not self.is_away

    def wipe(self) -> None:
        """As FLUSHALL does."""
        for kept in (self.values, self.sets, self.streams):
            kept.clear()  # type: ignore[attr-defined]

    async def ask(
        self,
        *commands: StoreCommand,
        topic: StoreTopic = StoreTopic.OTHER,
        within_s: float | None = None,
    ) -> list[StoreReply]:
        if self.is_away or topic in self.refused:
            raise StoreAway("away")
        return [getattr(self, f"_{command[0]}".lower())(*command[1:]) for command in commands]

    def _set(self, key: str, value: bytes, _px: str, life_ms: int) -> bytes:
        self.values[key] = (value, self._clock() + life_ms / 1000)
        return b"OK"

    def _mget(self, *keys: str) -> list[bytes | None]:
        found = (self.values.get(key) for key in keys)
        return [each[0] if each and each[1] > self._clock() else None for each in found]

    def _del(self, key: str) -> int:
        return int(self.values.pop(key, None) is not None)

    def _sadd(self, key: str, name: str) -> int:
        self.sets.setdefault(key, set()).add(name.encode())
        return 1

    def _srem(self, key: str, *names: str) -> int:
        self.sets.get(key, set()).difference_update(name.encode() for name in names)
        return len(names)

    def _smembers(self, key: str) -> list[bytes]:
        return list(self.sets.get(key, ()))

    def _time(self) -> list[bytes]:
        return [b"%d" % self._clock(), b"0"]

    def _xadd(self, key: str, *words: str | bytes | int) -> bytes:
        entries = self.streams.setdefault(key, [])
        number = max(int(self._clock() * 1000), entries[-1][0] + 1 if entries else 0)
        entries.append((number, [bytes(word) for word in words[-2:]]))  # type: ignore[arg-type]
        del entries[: -int(words[2])]
        return b"%d-0" % number

    def _pexpire(self, key: str, life_ms: int) -> int:
        return 1

    def _xread(self, _count: str, count: int, _streams: str, key: str, after: bytes) -> StoreReply:
        last = int(after.split(b"-")[0])
        new = [(number, fields) for number, fields in self.streams.get(key, ()) if number > last]
        entries = [[b"%d-0" % number, fields] for number, fields in new[:count]]
        return [[key.encode(), entries]] if entries else None
