"""Adapters that a worker tells of, on the wire."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.adapter import MAX_ADAPTERS, Adapter, OfferedAdapter
from cluster.errors import InvalidRequest
from protos import membership_pb2


def adapter_to_wire(offered: OfferedAdapter) -> membership_pb2.OfferedAdapter:
    """One of them."""
    adapter = offered.adapter
    return membership_pb2.OfferedAdapter(
        name=adapter.name, digest=adapter.digest, resident=offered.is_resident
    )


def adapters_from_wire(
    messages: Sequence[membership_pb2.OfferedAdapter],
) -> tuple[OfferedAdapter, ...]:
    """All of them, checked. Raises InvalidRequest."""
    if len(messages) > MAX_ADAPTERS:
        raise InvalidRequest(f"{len(messages)} adapters; allowed: {MAX_ADAPTERS}", param="adapters")
    told = tuple(
        OfferedAdapter(Adapter(item.name, item.digest), item.resident) for item in messages
    )
    for item in told:
        item.check()
    return told
