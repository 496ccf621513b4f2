"""The cached blocks of a worker that leaves, each behind the one before it. Pure.

A block whose beginning is not cached any more is of no use to anybody, and is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.contract.warm_blocks import WarmBlock


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """From its first block on."""

    root: bytes
    names: tuple[bytes, ...]
    """Of its blocks."""
    token_ids: tuple[int, ...]
    adapter: str = ""
    """Digest of what computed it; empty: the model alone. The last block's: of the first a worker
    of the version before may not have told it."""

    @property
    def num_tokens(self) -> int:
        """All of whole blocks."""
        return len(self.token_ids)


class WarmTree:
    """By name; iterates over the names, parents before their children."""

    def __init__(self, blocks: Iterable[WarmBlock]) -> None:
        """A name that is there twice counts as used at the later time."""
        self._blocks: dict[bytes, WarmBlock] = {}
        self._depths: dict[bytes, int] = {}
        self._heat: dict[bytes, int] = {}
        for warm in _parents_first(blocks):
            name, parent = warm.block.name, warm.block.parent
            self._blocks[name] = warm
            self._depths[name] = 1 if parent is None else self._depths[parent] + 1
            self._heat[name] = warm.last_used
        for name, warm in reversed(self._blocks.items()):
            if (parent := warm.block.parent) is not None:
                self._heat[parent] = max(self._heat[parent], self._heat[name])

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._blocks)

    def parent(self, name: bytes) -> bytes | None:
        """None: it is a first block."""
        return self._blocks[name].block.parent

    def depth(self, name: bytes) -> int:
        """Blocks from the first to this one."""
        return self._depths[name]

    def heat(self, name: bytes) -> int:
        """When this one, or one behind it, was used last; larger is later."""
        return self._heat[name]

    def way_to(self, end: bytes) -> list[bytes]:
        """From the first block to this one."""
        way = []
        name: bytes | None = end
        while name is not None:
            way.append(name)
            name = self.parent(name)
        return way[::-1]

    def prefix(self, end: bytes) -> CachedPrefix:
        """With its tokens: a copy as long as it is, to be made when it is wanted."""
        way = [self._blocks[name] for name in self.way_to(end)]
        return CachedPrefix(
            root=way[0].root or b"",
            names=tuple(each.block.name for each in way),
            token_ids=tuple(token for each in way for token in each.block.token_ids),
            adapter=way[-1].block.adapter,
        )


def _parents_first(blocks: Iterable[WarmBlock]) -> list[WarmBlock]:
    latest: dict[bytes, WarmBlock] = {}
    for warm in blocks:
        known = latest.setdefault(warm.block.name, warm)
        if known.last_used < warm.last_used:
            latest[warm.block.name] = warm
    children: dict[bytes | None, list[WarmBlock]] = {}
    for warm in latest.values():
        children.setdefault(warm.block.parent, []).append(warm)
    ordered = list(children.get(None, ()))
    for warm in ordered:  # grows while it is walked
        ordered.extend(children.get(warm.block.name, ()))
    return ordered
