"""Adapters that a worker tells of, on the wire."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.adapter import MAX_ADAPTERS, Adapter, LoadedAdapter
from cluster.errors import InvalidRequest
from protos import membership_pb2


def adapter_to_wire(loaded: LoadedAdapter) -> membership_pb2.LoadedAdapter:
    """One of them."""
    adapter = loaded.adapter
    return membership_pb2.LoadedAdapter(
        name=adapter.name, digest=adapter.digest, resident=loaded.is_resident
    )


def adapters_from_wire(
    messages: Sequence[membership_pb2.LoadedAdapter],
) -> tuple[LoadedAdapter, ...]:
    """All of them, checked. Raises InvalidRequest."""
    if len(messages) > MAX_ADAPTERS:
        raise InvalidRequest(f"{len(messages)} adapters; allowed: {MAX_ADAPTERS}", param="adapters")
    told = tuple(LoadedAdapter(Adapter(item.name, item.digest), item.resident) for item in messages)
    for item in told:
        item.check()
    return told
