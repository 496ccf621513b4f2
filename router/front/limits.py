"""What one client may take of a door: over HTTP, and over gRPC where it has the like."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from cluster.deadline import Clock
from cluster.process.descriptors import as_many_descriptors_as_allowed

MIN_CONNECTIONS = 16
RESERVED_DESCRIPTORS = 192
"""For workers, logs and the connections of operators."""
MAX_GRPC_CONNECTIONS = 4096
"""Each carries many calls; the fleet's workers are among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorLimits:
    """Bounds of bytes, seconds and connections."""

    max_body_bytes: int
    request_timeout_s: float
    """For the head of a request, and again for its body."""
    max_head_bytes: int = 32 * 1024
    max_headers: int = 100
    max_ahead_bytes: int = 64 * 1024
    """Of requests that a client sends on a connection while it is being answered there."""
    max_all_ahead_bytes: int = 16 * 1024 * 1024
    """Of all connections together. Over either, a connection closes after its answer."""
    max_dropped_bytes: int = 1024 * 1024
    """Beyond those, and of empty lines: a client that sends on for nothing is aborted."""
    max_refused_bytes: int = 16 * 1024 * 1024
    """Of a body after its refusal, read so that its client hears of it: many read only once they
    have sent everything. Twice what a body may have; who sends on is aborted."""
    max_connections: int = 4096
    """Over this many, and over an address's share of them, only health and metrics are answered."""
    reserved_connections: int = 64
    """For health and metrics; over both, a connection is closed at once."""
    max_unread_bytes: int = 64 * 1024 * 1024
    """Of answers that wait for their readers, on all connections together."""
    ping_interval_s: float = 15.0
    """Of silence in a stream, before a sign of life; 0: never."""
    reader_timeout_s: float = 30.0
    """A client that lets 64 KiB of its answer, or its end, wait this long is dropped."""
    clock: Clock = field(default=time.monotonic, compare=False, repr=False)
    """By which all of these are counted."""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Connections of each door: together no more than the process can open."""

    http: int
    grpc: int


def shared_descriptors() -> Descriptors:
    """What the process's file descriptors allow; raises the soft limit to the hard one."""
    allowed = as_many_descriptors_as_allowed()
    free = max(2 * MIN_CONNECTIONS, min(allowed, 65_536) - RESERVED_DESCRIPTORS)
    grpc = min(MAX_GRPC_CONNECTIONS, free // 4)
    return Descriptors(free - grpc, grpc)
