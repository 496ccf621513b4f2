"""Adapters that a worker tells of, on the wire."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.adapter import MAX_ADAPTERS, Adapter, OfferedAdapter, UnreadAdapters, check_name
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
    _check_num(len(messages))
    told = tuple(
        OfferedAdapter(Adapter(item.name, item.digest), item.resident) for item in messages
    )
    for item in told:
        item.check()
    return told


def unread_to_wire(unread: UnreadAdapters) -> membership_pb2.UnreadAdapters:
    """The names are the same on both sides."""
    return membership_pb2.UnreadAdapters(names=sorted(unread.names), may_be_any=unread.may_be_any)


def unread_from_wire(message: membership_pb2.UnreadAdapters) -> UnreadAdapters:
    """The inverse, checked. Raises InvalidRequest."""
    _check_num(len(message.names))
    return UnreadAdapters(frozenset(map(check_name, message.names)), message.may_be_any)


def _check_num(num_adapters: int) -> None:
    if num_adapters > MAX_ADAPTERS:
        raise InvalidRequest(f"{num_adapters} adapters; allowed: {MAX_ADAPTERS}", param="adapters")
