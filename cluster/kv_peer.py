"""Where a worker's KV pool can be read: what a handshake gives to a reader."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPeer:
    """Typed fields only, as in `protos/handoff.proto`; the transfer library's pickles stay out.

    Addresses are in the peer's own address space and mean something to its transfer agent only.
    """

    agent_name: str
    """Unique per process: late reads never meet a namesake."""
    agent_metadata: bytes
    """Opaque connection data of the transfer library."""
    transport: str
    """"nixl" or "loopback"."""
    pool_address: int
    """Of block 0."""
    block_bytes: int
    """Stride and size of a block."""
    num_blocks: int
    generations_address: int
    """uint64 [num_blocks]; bumped before a slot is given to another sequence."""
    device_id: int
    memory: str
    """"DRAM" or "VRAM"."""
    host: str
    """Boot id of the machine; equal when shared memory is possible."""
