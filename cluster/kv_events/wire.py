"""KV cache events as vLLM puts them on the wire, so that routers and engines can be mixed.

A PUB message has three frames: topic, sequence number (8 bytes, big-endian), payload. The payload
is a msgpack array [timestamp in seconds, events, data-parallel rank]; an event is a map whose
"type" is the class's name here. Numbers rise by one per message, from 0 in a new process.

Asking a replay socket (ROUTER): frames (empty, start). `start` is a sequence number (8 bytes): the
answer is every buffered message from there on, as frames (empty, topic, number, payload), then one
whose number is END. Our own addition: a `start` of END asks for a snapshot. The answer is messages
that all carry the number of the last live message the snapshot is sure to contain; the first opens
with AllBlocksCleared, then every live block follows, parents first; then the buffered messages
after that number, then END. Applying a message twice in order changes nothing, so live messages
go on without a gap. A publisher that knows no snapshots answers with END alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from cluster.block_hash import NAME_BYTES
from cluster.cache_change import CacheChange, CachedBlock

END = b"\xff" * 8
"""-1 as 8 signed bytes: ends a replay; as a start it asks for a snapshot."""
DEVICE_MEDIUM = "GPU"
"""vLLM's word for the tier that attention reads; a CPU engine's own memory too."""
SLICE_BLOCKS = 256
"""Stored blocks that are handled in one go: some 0.6 ms on the 2-core machine."""
SLICE_NAMES = 32
"""Removed blocks: 1 ms at most, where each is cut out of a long run. Every second one of 6,250 held
the loop for 34 ms when they were handled in one go."""
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
NO_NAMES: Mapping[str, str] = MappingProxyType({})
_SEQUENCE = struct.Struct(">Q")

BlockHash = bytes | int


class BlockStored(msgspec.Struct, tag=True, gc=False):
    """Consecutive blocks that follow `parent_block_hash`; `token_ids` are those of all of them."""

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    """vLLM's number of the adapter that computed them; here it is made of the digest."""
    medium: str | None = DEVICE_MEDIUM
    lora_name: str | None = None
    """What clients call that adapter; None: the model alone computed them."""


class BlockRemoved(msgspec.Struct, tag=True, gc=False):
    """Blocks that left the cache."""

    block_hashes: list[BlockHash]
    medium: str | None = DEVICE_MEDIUM


class AllBlocksCleared(msgspec.Struct, tag=True, gc=False):
    """The cache is empty."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """One message's payload."""

    ts: float
    events: list[Event]
    data_parallel_rank: int | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(EventBatch)


def encode_batch(batch: EventBatch) -> bytes:
    """The payload frame."""
    return _encoder.encode(batch)


def decode_batch(payload: bytes) -> EventBatch:
    """Raises msgspec.DecodeError for what is not a batch; unknown fields are ignored."""
    return _decoder.decode(payload)


def encode_sequence(number: int) -> bytes:
    """The sequence frame."""
    return _SEQUENCE.pack(number)


def decode_sequence(frame: bytes) -> int:
    """Raises ValueError when the frame is not 8 bytes."""
    if len(frame) != _SEQUENCE.size:
        raise ValueError(f"a sequence number has 8 bytes, not {len(frame)}")
    return int(_SEQUENCE.unpack(frame)[0])


def to_events(change: CacheChange, names: Mapping[str, str] = NO_NAMES) -> list[Event]:
    """In the order of a change: cleared, stored (a chain of blocks in one event), removed.
    `names`: see `stored_events`."""
    events: list[Event] = [AllBlocksCleared()] if change.cleared else []
    events += stored_events(change.stored, names)
    if change.removed:
        events.append(BlockRemoved(list(change.removed)))
    return events


def stored_events(
    blocks: list[CachedBlock], names: Mapping[str, str] = NO_NAMES
) -> list[BlockStored]:
    """One event per run of blocks that follow each other, of one adapter. `names`: of adapters, by
    digest; one that has none is called by its digest."""
    events: list[BlockStored] = []
    adapter = ""
    for block in blocks:
        last = events[-1] if events else None
        is_alike = last is not None and last.block_size == len(block.token_ids)
        is_alike = is_alike and adapter == block.adapter
        adapter = block.adapter
        if last is not None and is_alike and last.block_hashes[-1] == block.parent:
            last.block_hashes.append(block.name)
            last.token_ids.extend(block.token_ids)
        else:
            size = len(block.token_ids)
            stored = BlockStored([block.name], block.parent, list(block.token_ids), size)
            if block.adapter:
                stored.lora_id = _lora_id(block.adapter)
                stored.lora_name = names.get(block.adapter, block.adapter)
            events.append(stored)
    return events


def _lora_id(digest: str) -> int:
    """From 1 to 2**31 - 1, as others keep it in 32 bits: that two of 256 adapters share one has a
    chance of 1 in 65,000."""
    return 1 + int(digest[:8], 16) % 0x7FFFFFFF


def to_changes(batch: EventBatch) -> Iterator[CacheChange]:
    """What the events say, in order, a slice of at most SLICE_BLOCKS stored blocks, or SLICE_NAMES
    removed ones, at a time.

    Lazy: nothing is read before it is asked for. Raises ValueError when counts do not fit together.
    Events of other tiers are left out: the index knows the device tier only. An adapter's blocks
    have names of their own.
    """
    for event in batch.events:
        yield from _changes_of(event)


def _changes_of(event: Event) -> Iterator[CacheChange]:
    match event:
        case AllBlocksCleared():
            yield CacheChange(cleared=True)
        case BlockRemoved():
            if event.medium in (None, DEVICE_MEDIUM):
                yield from _removed(event)
        case BlockStored():
            if event.medium in (None, DEVICE_MEDIUM):
                yield from _stored(event)


def _removed(event: BlockRemoved) -> Iterator[CacheChange]:
    for first in range(0, len(event.block_hashes), SLICE_NAMES):
        hashes = event.block_hashes[first : first + SLICE_NAMES]
        yield CacheChange(removed=[_name(item) for item in hashes])


def _stored(event: BlockStored) -> Iterator[CacheChange]:
    size = event.block_size
    if size < 1 or len(event.token_ids) != size * len(event.block_hashes):
        raise ValueError(
            f"{len(event.block_hashes)} blocks of {size} tokens came with "
            f"{len(event.token_ids)} tokens"
        )
    parent = None if event.parent_block_hash is None else _name(event.parent_block_hash)
    for first in range(0, len(event.block_hashes), SLICE_BLOCKS):
        names = [_name(item) for item in event.block_hashes[first : first + SLICE_BLOCKS]]
        tokens = event.token_ids[first * size : (first + len(names)) * size]
        yield CacheChange(stored=_blocks(names, parent, tokens, size))
        parent = names[-1]


def _blocks(
    names: list[bytes], parent: bytes | None, token_ids: list[int], size: int
) -> list[CachedBlock]:
    if not 0 <= min(token_ids) <= max(token_ids) < 2**32:
        raise ValueError("a token id is outside 0 .. 2**32 - 1")
    parents = (parent, *names)
    return [
        CachedBlock(name, above, token_ids[start : start + size])
        for name, above, start in zip(names, parents, range(0, len(token_ids), size), strict=False)
    ]


def _name(block_hash: BlockHash) -> bytes:
    """Our names are bytes; a 64-bit integer of another engine becomes its 16 bytes."""
    if isinstance(block_hash, bytes):
        return block_hash
    return block_hash.to_bytes(NAME_BYTES, "big", signed=block_hash < 0)
