"""Grammars that are kept compiled for whoever asks again: a bounded number, shared fairly.

Where one has to go it is of the owner that has most of them, its least lately asked for: who asks
with ever new ones pushes out its own as soon as it has more than others.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

MAX_KEPT = 64
"""Of an engine. Those that run keep theirs in any case."""

Kept = TypeVar("Kept")


class KeptGrammars(Generic[Kept]):
    """By digest, the least lately asked for first. One thread."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[bytes, tuple[bytes, Kept]] = OrderedDict()
        self._num_of: Counter[bytes] = Counter()

    def __iter__(self) -> Iterator[Kept]:
        return (kept for _, kept in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, digest: bytes) -> Kept | None:
        """None: it is not kept, or not any more."""
        found = self._kept.get(digest)
        return None if found is None else found[1]

    def touch(self, digest: bytes) -> None:
        """It was asked for, by whomever."""
        self._kept.move_to_end(digest)

    def put(self, digest: bytes, kept: Kept, *, owner: bytes) -> None:
        """In the owner's share; what had that digest before is gone."""
        self._drop(digest)
        self._kept[digest] = owner, kept
        self._num_of[owner] += 1
        if len(self._kept) > self._most:
            self._drop(self._next_to_go())

    def _next_to_go(self) -> bytes:
        most = max(self._num_of.values())
        return next(
            digest for digest, (owner, _) in self._kept.items() if self._num_of[owner] == most
        )

    def _drop(self, digest: bytes) -> None:
        found = self._kept.pop(digest, None)
        if found is not None:
            owner = found[0]
            self._num_of[owner] -= 1
            if not self._num_of[owner]:
                del self._num_of[owner]
