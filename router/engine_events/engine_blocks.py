"""What an engine has cached: its own hashes, as names of ours, and how many copies of each.

    BlockStored   hash -> name of ours, over the same tokens below the root that is its salt
                  known already: one copy more
    BlockRemoved  one copy less; the last one is gone from the index as well

The engine's hashes are never computed here, they only stand for what came with them. It tells
every copy of a block by itself, and keeps several of one: what forgets a block with the first copy
that goes believes too little. What no request of ours could ask for has no name, nor has what
follows it: others' salts, adapters, images, embeddings, partial blocks, other groups of layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from cluster.block_hash import NAME_BYTES, chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from router.engine_events.packed_array import (
    BLOCK_HASHES,
    MAX_SLICE_ITEMS,
    TOKEN_IDS,
    PackedArray,
)
from router.engine_events.source import EngineEventSource
from router.engine_events.wire import (
    ClearedEvent,
    EngineEvent,
    EngineHash,
    RemovedEvent,
    StoredEvent,
)

MAX_BLOCKS = 2**18
"""Of one engine: four million tokens in blocks of 16, some 50 MB here. One that has more is begun
anew."""
SLICE_BLOCKS = 256
"""As in `cluster.kv_events.wire`; of large blocks fewer, MAX_SLICE_ITEMS tokens together."""
_LOW_64_BITS = 2**64 - 1
_ROOT = re.compile(f"[0-9a-f]{{{2 * NAME_BYTES}}}")

NoteLeftOut = Callable[[str, int], None]
"""(why, number of blocks)"""


class EngineBlocks:
    """Of one engine. `note_left_out` hears of blocks that get no name, by a reason of a few."""

    def __init__(
        self,
        source: EngineEventSource,
        note_left_out: NoteLeftOut,
        *,
        max_blocks: int = MAX_BLOCKS,
    ) -> None:
        self._source = source
        self._note_left_out = note_left_out
        self._max_blocks = max_blocks
        assert 1 <= source.block_size_tokens <= MAX_SLICE_ITEMS, "a member's size is checked"
        self._slice_blocks = min(SLICE_BLOCKS, MAX_SLICE_ITEMS // source.block_size_tokens)
        self._names: dict[int, bytes] = {}
        self._more: dict[int, int] = {}
        """Copies beyond the first."""
        self._group: int | None = None
        """Which group of layers is followed: the first that serves whole prefixes."""

    def __len__(self) -> int:
        """Blocks, each counted once."""
        return len(self._names)

    def num_copies(self, block_hash: EngineHash) -> int:
        """For checks."""
        key = _key(block_hash)
        return (key in self._names) + self._more.get(key, 0)

    def clear(self) -> None:
        """Nothing is known."""
        self._names, self._more, self._group = {}, {}, None

    def changes(self, event: EngineEvent) -> Iterator[CacheChange]:
        """What an event means for the index, a slice at a time; to be asked for to its end.

        Raises ValueError for an event that cannot be true, and OverflowError for more blocks than
        are kept: then nothing is certain any more, and all has to be forgotten.
        """
        match event:
            case StoredEvent():
                yield from self._stored(event)
            case RemovedEvent():
                if event.is_in_own_memory and event.group_idx == self._group:
                    yield from self._removed(event)
            case ClearedEvent():
                self.clear()
                yield CacheChange(cleared=True)
            case _:
                self._note_left_out("unknown_event", 1)

    def _stored(self, event: StoredEvent) -> Iterator[CacheChange]:
        hashes = PackedArray(bytes(event.block_hashes), BLOCK_HASHES)
        if (why := self._why_not(event)) is not None:
            self._note_left_out(why, len(hashes))
            return
        self._check_counts(event, len(hashes))
        extra = event.read_extra_keys()
        is_first = event.parent_block_hash is None
        ends = self._source.salt_ends()
        parent = _root(extra, ends) if is_first else self._name_of(event.parent_block_hash)
        if parent is None:
            self._note_left_out("other_salt" if is_first else "unknown_parent", len(hashes))
            return
        num_plain = _num_plain(extra, len(hashes), begin=int(is_first))
        yield from self._named(event, hashes, parent, num_plain)
        if num_plain < len(hashes):
            self._note_left_out("extra_keys", len(hashes) - num_plain)

    def _named(
        self, event: StoredEvent, hashes: PackedArray[EngineHash], chain: bytes, num_plain: int
    ) -> Iterator[CacheChange]:
        """`chain`: the name before the first of them, which a tenant's root is as well."""
        size, num_blocks = self._source.block_size_tokens, self._slice_blocks
        tokens = PackedArray(bytes(event.token_ids), TOKEN_IDS).slices(num_blocks * size)
        parent = None if event.parent_block_hash is None else chain
        for first, (keys, run) in enumerate(zip(hashes.slices(num_blocks), tokens, strict=True)):
            del keys[max(0, num_plain - first * num_blocks) :]
            if not keys:
                return
            names = chain_names(pack_tokens(run), parent=chain, block_size_tokens=size)
            del names[len(keys) :]
            self._count(keys, names)
            yield CacheChange(stored=_blocks(names, parent, run, size))
            parent = chain = names[-1]

    def _count(self, keys: list[EngineHash], names: list[bytes]) -> None:
        for key, name in zip(map(_key, keys), names, strict=True):
            known = self._names.setdefault(key, name)
            if known is name:
                continue
            if known != name:
                raise ValueError("one hash stands for two blocks")
            self._more[key] = self._more.get(key, 0) + 1
        if len(self._names) > self._max_blocks:
            raise OverflowError(f"an engine told of more than {self._max_blocks} blocks")

    def _removed(self, event: RemovedEvent) -> Iterator[CacheChange]:
        for keys in PackedArray(bytes(event.block_hashes), BLOCK_HASHES).slices(SLICE_BLOCKS):
            gone = [name for key in keys if (name := self._take_one(_key(key))) is not None]
            yield CacheChange(removed=gone)

    def _take_one(self, key: int) -> bytes | None:
        """The name of a block whose last copy that was."""
        num_more = self._more.pop(key, 0)
        if not num_more:
            return self._names.pop(key, None)
        if num_more > 1:
            self._more[key] = num_more - 1
        return None

    def _why_not(self, event: StoredEvent) -> str | None:
        """Why these blocks have no names; None: they have."""
        if not event.is_in_own_memory:
            return "other_medium"
        if event.has_adapter:
            return "adapter"
        if not self._is_of_group(event):
            return "other_group"
        return None if event.block_size == self._source.block_size_tokens else "other_size"

    def _is_of_group(self, event: StoredEvent) -> bool:
        if not event.serves_whole_prefixes:
            return False
        if not self._names:
            self._group = event.group_idx
        return event.group_idx == self._group

    def _check_counts(self, event: StoredEvent, num_blocks: int) -> None:
        num_tokens = len(PackedArray(bytes(event.token_ids), TOKEN_IDS))
        if num_tokens != num_blocks * event.block_size:
            raise ValueError(
                f"{num_blocks} blocks of {event.block_size} tokens came with {num_tokens} tokens"
            )

    def _name_of(self, block_hash: EngineHash | None) -> bytes | None:
        return None if block_hash is None else self._names.get(_key(block_hash))


def _root(extra: list[list[Any] | None], ends: tuple[str, ...]) -> bytes | None:
    """The root of ours that a sequence's first block was hashed with, where it was with nothing
    else; `ends`: of its salt, after the root."""
    match extra[0] if extra else None:
        case [str(salt)]:
            for end in ends:
                if salt.endswith(end) and _ROOT.fullmatch(root := salt.removesuffix(end)):
                    return bytes.fromhex(root)
    return None


def _num_plain(extra: list[list[Any] | None], num_blocks: int, *, begin: int) -> int:
    """How many of the first blocks were hashed with their tokens alone; those before `begin` are
    taken to be."""
    if extra and len(extra) != num_blocks:
        raise ValueError(f"{num_blocks} blocks came with {len(extra)} lists of extra keys")
    found = (index for index in range(begin, len(extra)) if extra[index])
    return next(found, num_blocks)


def _blocks(
    names: list[bytes], parent: bytes | None, token_ids: list[int], size: int
) -> list[CachedBlock]:
    return [
        CachedBlock(name, above, token_ids[index * size : (index + 1) * size])
        for index, (name, above) in enumerate(zip(names, (parent, *names), strict=False))
    ]


def _key(block_hash: EngineHash) -> int:
    """Engines say the same 64 bits with a sign, without one, or as the end of a digest."""
    if isinstance(block_hash, bytes):
        return int.from_bytes(block_hash[-8:], "big")
    return block_hash & _LOW_64_BITS
