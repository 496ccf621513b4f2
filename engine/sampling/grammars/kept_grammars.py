"""Grammars that are kept compiled for whoever asks again: so many, and so many bytes by estimate,
shared fairly.

Where one has to go it is of the owner that has most of them, or of their bytes where these are too
many, its least lately asked for: who asks with ever new ones pushes out its own as soon as it has
more than others.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from cluster.models.text.grammars import MAX_LEXER_STATES

MAX_KEPT = 128
"""Of an engine, whose tenants have each their own. Those that run keep theirs in any case."""
MAX_KEPT_BYTES = 256 << 20
"""By `likely_bytes` and `grown_bytes`, of an engine."""
BASE_BYTES = 256 << 10
BYTES_PER_TEXT_BYTE = 512
"""The most of twelve kinds of grammars was 365: a literal of 30 kB took 10.8 MB of memory."""
BYTES_PER_TOKEN = 10 << 10
"""That an answer adds to the compile that it shares with others, at most: strings of one length
that is in the tens of thousands. A usual schema's hundreds of tokens add 0.4 MB together."""
MAX_GROWN_BYTES = MAX_LEXER_STATES * 512

Kept = TypeVar("Kept")


def likely_bytes(num_text_bytes: int) -> int:
    """Of a grammar with so long a text, compiled, with its first mask."""
    return BASE_BYTES + BYTES_PER_TEXT_BYTE * num_text_bytes


def grown_bytes(num_tokens: int) -> int:
    """What answers with so many tokens together have added to one compile, at most."""
    return min(MAX_GROWN_BYTES, BYTES_PER_TOKEN * num_tokens)


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Kept]):
    kept: Kept
    owner: bytes
    num_bytes: int


class KeptGrammars(Generic[Kept]):
    """By digest, the least lately asked for first. One thread."""

    def __init__(self, most: int = MAX_KEPT, most_bytes: int = MAX_KEPT_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._entries: OrderedDict[bytes, _Entry[Kept]] = OrderedDict()
        self._num_of: Counter[bytes] = Counter()
        self._bytes_of: Counter[bytes] = Counter()
        self.num_bytes = 0
        """Of all, by estimate."""

    def __iter__(self) -> Iterator[Kept]:
        return (entry.kept for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: bytes) -> Kept | None:
        """None: it is not kept, or not any more."""
        found = self._entries.get(digest)
        return None if found is None else found.kept

    def touch(self, digest: bytes) -> None:
        """It was asked for again."""
        self._entries.move_to_end(digest)

    def put(self, digest: bytes, kept: Kept, *, owner: bytes, num_bytes: int = 0) -> None:
        """In the owner's share; what had that digest before is gone. It is kept itself, however
        large it is."""
        self._drop(digest)
        self._entries[digest] = _Entry(kept, owner, num_bytes)
        self._num_of[owner] += 1
        self._bytes_of[owner] += num_bytes
        self.num_bytes += num_bytes
        if len(self._entries) > self._most:
            self._drop(self._next_to_go(self._num_of))
        self._drop_bytes(but=digest)

    def weigh(self, digest: bytes, num_bytes: int) -> None:
        """What is kept by that name has so many bytes now, in the same share; others may go for
        it, and where it is alone nothing does."""
        found = self._entries[digest]
        more = num_bytes - found.num_bytes
        if not more:
            return
        self._entries[digest] = replace(found, num_bytes=num_bytes)
        self._bytes_of[found.owner] += more
        self.num_bytes += more
        self._drop_bytes()

    def _drop_bytes(self, but: bytes | None = None) -> None:
        while self.num_bytes > self._most_bytes and len(self._entries) > 1:
            self._drop(self._next_to_go(self._bytes_of, but=but))

    def _next_to_go(self, share_of: Counter[bytes], but: bytes | None = None) -> bytes:
        """The first of the owner with the largest share, of those that have another than `but`."""
        owners = {entry.owner for digest, entry in self._entries.items() if digest != but}
        largest = max(share_of[owner] for owner in owners)
        return next(
            digest
            for digest, entry in self._entries.items()
            if digest != but and share_of[entry.owner] == largest
        )

    def _drop(self, digest: bytes) -> None:
        found = self._entries.pop(digest, None)
        if found is None:
            return
        owner = found.owner
        self.num_bytes -= found.num_bytes
        self._num_of[owner] -= 1
        self._bytes_of[owner] -= found.num_bytes
        if not self._num_of[owner]:
            del self._num_of[owner], self._bytes_of[owner]
