"""What is kept for whoever asks again: so many, and so many bytes by estimate, shared fairly.

Where one has to go it is of the owner that has most of them, or of their bytes where these are too
many, its least lately asked for: who asks with ever new ones pushes out its own as soon as it has
more than others. Of owners that have as many, who has asked for nothing for longest gives way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

Name = TypeVar("Name")
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Kept]):
    kept: Kept
    owner: bytes
    num_bytes: int


@dataclass(slots=True)
class _Share(Generic[Name]):
    """Of one owner; at least one."""

    names: OrderedDict[Name, None] = field(default_factory=OrderedDict)
    """The least lately asked for first."""
    num_bytes: int = 0


class KeptInShares(Generic[Name, Kept]):
    """By name, the least lately asked for first. One thread. To find what goes takes a step for
    each owner, however much is kept."""

    def __init__(self, most: int, most_bytes: int | None = None) -> None:
        """`most_bytes`: None: nobody counts them."""
        self._most = most
        self._most_bytes = most_bytes
        self._entries: OrderedDict[Name, _Entry[Kept]] = OrderedDict()
        self._shares: OrderedDict[bytes, _Share[Name]] = OrderedDict()
        """By owner, who has asked least lately first."""
        self.num_bytes = 0
        """Of all, by estimate."""

    def __iter__(self) -> Iterator[Kept]:
        return (entry.kept for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: Name) -> Kept | None:
        """None: it is not kept, or not any more."""
        found = self._entries.get(name)
        return None if found is None else found.kept

    def touch(self, name: Name) -> None:
        """It was asked for again."""
        owner = self._entries[name].owner
        self._entries.move_to_end(name)
        self._shares[owner].names.move_to_end(name)
        self._shares.move_to_end(owner)

    def put(self, name: Name, kept: Kept, *, owner: bytes, num_bytes: int = 0) -> None:
        """In the owner's share; what had that name before is gone. It is kept itself, however
        large it is."""
        self._drop(name)
        self._entries[name] = _Entry(kept, owner, num_bytes)
        share = self._shares.setdefault(owner, _Share())
        self._shares.move_to_end(owner)
        share.names[name] = None
        share.num_bytes += num_bytes
        self.num_bytes += num_bytes
        if len(self._entries) > self._most:
            self._drop_of(max(self._shares.values(), key=lambda share: len(share.names)))
        self._drop_bytes(but=name)

    def weigh(self, name: Name, num_bytes: int) -> None:
        """What is kept by that name has so many bytes now, in the same share; others may go for
        it, and where it is alone nothing does."""
        found = self._entries[name]
        more = num_bytes - found.num_bytes
        if not more:
            return
        self._entries[name] = replace(found, num_bytes=num_bytes)
        self._shares[found.owner].num_bytes += more
        self.num_bytes += more
        self._drop_bytes()

    def check_invariants(self) -> None:
        """Each is in its owner's share, and nothing else is."""
        names = [(name, owner) for owner, share in self._shares.items() for name in share.names]
        assert all(share.names for share in self._shares.values())
        assert len(names) == len(self._entries) <= self._most
        assert all(self._entries[name].owner == owner for name, owner in names)
        in_shares = sum(share.num_bytes for share in self._shares.values())
        of_entries = sum(entry.num_bytes for entry in self._entries.values())
        assert in_shares == of_entries == self.num_bytes

    def _drop_bytes(self, but: Name | None = None) -> None:
        """`but` is the last of its share, where it has one beside others."""
        most = self._most_bytes
        while most is not None and self.num_bytes > most and len(self._entries) > 1:
            others = (s for s in self._shares.values() if len(s.names) > 1 or but not in s.names)
            self._drop_of(max(others, key=lambda share: share.num_bytes))

    def _drop_of(self, share: _Share[Name]) -> None:
        self._drop(next(iter(share.names)))

    def _drop(self, name: Name) -> None:
        found = self._entries.pop(name, None)
        if found is None:
            return
        share = self._shares[found.owner]
        del share.names[name]
        share.num_bytes -= found.num_bytes
        self.num_bytes -= found.num_bytes
        if not share.names:
            del self._shares[found.owner]
