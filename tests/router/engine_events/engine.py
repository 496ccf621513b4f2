"""What an engine says of its cache, in each of the shapes that are about."""

from __future__ import annotations

from typing import Any

import msgspec

from cluster.block_hash import cache_root
from router.engine_events.source import EngineEventSource
from router.engine_events.wire import EngineEvent, read_batch, read_events

SIZE = 4
SOURCE = EngineEventSource(pub="tcp://127.0.0.1:1", block_size_tokens=SIZE)
ROOT = cache_root("a model", "a tenant")
SALT = ROOT.hex()


def stored(
    hashes: list[Any], parent: Any, token_ids: list[int], *, size: int = SIZE, **more: Any
) -> dict[str, Any]:
    """As vLLM 0.32 says it, of a tenant's request; `more` are fields that it may leave out."""
    extra = [None if index or parent is not None else [SALT] for index in range(len(hashes))]
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": token_ids,
        "block_size": size,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": extra,
        **more,
    }


def removed(hashes: list[Any], **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU", **more}


CLEARED = {"type": "AllBlocksCleared"}


def payload(*events: Any, ts: float = 1.0) -> bytes:
    """Of a batch of rank 0."""
    return msgspec.msgpack.encode([ts, list(events), 0])


def events_in(packed: bytes) -> list[EngineEvent]:
    return list(read_events(read_batch(packed)))
