"""KV events of vLLM and SGLang, from bytes to values; nothing long is read here.

    PUB      topic, number (8 bytes, big-endian, from 0), payload
    payload  [seconds, events, data-parallel rank], or a map of those names
    event    a map with `type` (vLLM since 0.26, SGLang now), or an array: the type, then the
             fields by position, of which the last may be missing (before)

Written after vLLM 0.32 (`vllm/distributed/kv_events.py`) and SGLang 0.5
(`sglang/srt/disaggregation/kv_events.py`); frames of the former are in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from router.engine_events.packed_array import num_items

MAX_PAYLOAD_BYTES = 2 * 1024 * 1024
"""Some 400,000 tokens at once; a step of an engine computes a few thousand."""
MAX_EVENTS = 65_536
"""Of one payload: an engine tells every block that it drops by an event of its own."""
MAX_EXTRA_BYTES = 256 * 1024
"""Of what blocks were hashed with beside their tokens: read at once, in 5 ms at worst."""

_NIL_BYTE = b"\xc0"
_NIL = msgspec.Raw(_NIL_BYTE)
_OWN_MEMORY = (None, "GPU")
"""The tier that attention reads; vLLM's CPU build says so, too."""
_WHOLE_PREFIX = ("full_attention", "mla_attention", "sink_full_attention")
"""Kinds of cache in which a block stays of use for all that follows."""

EngineHash = int | bytes


class EngineEvent(msgspec.Struct, gc=False):
    """What is said of some blocks; of an unknown event only this is read."""

    type: str


class StoredEvent(EngineEvent, gc=False):
    """Blocks that follow `parent_block_hash`, each with `block_size` tokens; one event for each
    copy of a block, where there are several."""

    block_hashes: msgspec.Raw
    parent_block_hash: EngineHash | None
    token_ids: msgspec.Raw
    block_size: int
    lora_id: msgspec.Raw = _NIL
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: msgspec.Raw = _NIL
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: msgspec.Raw = _NIL
    locality: str | None = None

    @property
    def is_in_own_memory(self) -> bool:
        """Not in a slower tier, nor with somebody else."""
        return self.medium in _OWN_MEMORY and self.locality != "REMOTE"

    @property
    def has_adapter(self) -> bool:
        """A LoRA's keys and values, which no request of ours asks for."""
        return bytes(memoryview(self.lora_id)[:1]) != _NIL_BYTE or self.lora_name is not None

    @property
    def serves_whole_prefixes(self) -> bool:
        """By the kind of its group's attention; one that does not say it does, as group 0."""
        if self.kv_cache_spec_kind is None:
            return not self.group_idx
        return self.kv_cache_spec_kind in _WHOLE_PREFIX

    def read_extra_keys(self) -> list[list[Any] | None]:
        """What each block was hashed with beside its tokens; empty where none has anything. Raises
        ValueError for what is too large or none."""
        if len(self.extra_keys) > MAX_EXTRA_BYTES:
            raise ValueError(f"extra keys of {len(self.extra_keys)} bytes")
        return _extra_keys.decode(self.extra_keys) or []


class RemovedEvent(EngineEvent, gc=False):
    """One copy less of each of these blocks."""

    block_hashes: msgspec.Raw
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None

    @property
    def is_in_own_memory(self) -> bool:
        """As of a stored one."""
        return self.medium in _OWN_MEMORY and self.locality != "REMOTE"


class ClearedEvent(EngineEvent, gc=False):
    """No block is left."""


class EngineBatch(msgspec.Struct, gc=False):
    """One payload, its events still packed."""

    ts: float
    events: msgspec.Raw


class _BatchInOrder(EngineBatch, array_like=True, gc=False):
    pass


class _EventInOrder(EngineEvent, array_like=True, gc=False):
    pass


class _StoredInOrder(StoredEvent, array_like=True, gc=False):
    pass


class _RemovedInOrder(RemovedEvent, array_like=True, gc=False):
    pass


class _ClearedInOrder(ClearedEvent, array_like=True, gc=False):
    pass


def _decoder(shape: type[EngineEvent]) -> msgspec.msgpack.Decoder[EngineEvent]:
    return msgspec.msgpack.Decoder(shape)


_batch = msgspec.msgpack.Decoder(EngineBatch)
_batch_in_order = msgspec.msgpack.Decoder(_BatchInOrder)
_raw_events = msgspec.msgpack.Decoder(list[msgspec.Raw])
_extra_keys = msgspec.msgpack.Decoder(list[list[Any] | None] | None)
_any_event, _any_in_order = _decoder(EngineEvent), _decoder(_EventInOrder)
_by_name = {
    "BlockStored": _decoder(StoredEvent),
    "BlockRemoved": _decoder(RemovedEvent),
    "AllBlocksCleared": _decoder(ClearedEvent),
}
_in_order = {
    "BlockStored": _decoder(_StoredInOrder),
    "BlockRemoved": _decoder(_RemovedInOrder),
    "AllBlocksCleared": _decoder(_ClearedInOrder),
}


def read_batch(payload: bytes) -> EngineBatch:
    """Raises ValueError (msgspec.DecodeError is one) for what is no batch, or too large."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a message of {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES}")
    batch = (_batch_in_order if _is_array(payload) else _batch).decode(payload)
    num_events, _ = num_items(bytes(batch.events))
    if num_events > MAX_EVENTS:
        raise ValueError(f"{num_events} events in one message; at most {MAX_EVENTS}")
    return batch


def read_events(batch: EngineBatch) -> Iterator[EngineEvent]:
    """In order, one at a time; one of an unknown type has nothing but that. Raises ValueError at
    one that is malformed."""
    for packed in _raw_events.decode(batch.events):
        in_order = _is_array(packed)
        kind = (_any_in_order if in_order else _any_event).decode(packed)
        known = (_in_order if in_order else _by_name).get(kind.type)
        yield kind if known is None else known.decode(packed)


def _is_array(packed: bytes | msgspec.Raw) -> bool:
    first = bytes(memoryview(packed)[:1])
    return b"\x90" <= first <= b"\x9f" or first in (b"\xdc", b"\xdd")
