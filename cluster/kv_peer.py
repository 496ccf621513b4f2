"""Where a worker's KV pool can be read: what a handshake gives to a reader."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.block_homes import BlockHomes


@dataclass(frozen=True, slots=True, kw_only=True)
class KvRank:
    """The part of a pool that one process of the worker holds: a run of heads of every block, or
    the whole of some blocks. Rank 0 has all of a drafting head's layers besides (Pairing.head).

    Addresses are in that process's own address space and mean something to its transfer agent only.
    """

    rank: int
    first_head: int
    num_heads: int
    agent_name: str
    """Unique per process: late reads never meet a namesake."""
    agent_metadata: bytes
    """Opaque connection data of the transfer library."""
    pool_address: int
    """Of the first block that it holds."""
    block_bytes: int
    """Stride and size of this rank's part of a block."""
    memory: str
    """"DRAM" or "VRAM"."""
    device_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPeer:
    """Typed fields only, as in `protos/handoff.proto`; the transfer library's pickles stay out."""

    transport: str
    """"nixl" or "loopback"."""
    shares_blocks: bool
    """Whether the ranks share the blocks, each with all heads, or the heads of every block."""
    blocks_each: int
    """Of every rank. Where heads are shared, a block has the same slot in all of them."""
    block_size_tokens: int
    generations_address: int
    """uint64 [num_blocks], in rank 0 and once for all ranks' blocks; bumped before a slot is given
    to another sequence."""
    host: str
    """Boot id of the machine; equal when shared memory is possible."""
    ranks: tuple[KvRank, ...]
    """In order. Of those that share heads several may hold the same one, with equal bytes."""

    @property
    def homes(self) -> BlockHomes:
        """Which rank has which block."""
        return BlockHomes(len(self.ranks) if self.shares_blocks else 1, self.blocks_each)

    @property
    def num_blocks(self) -> int:
        """Ids of blocks, in all."""
        return self.homes.num_blocks
