"""The local end of every transfer: the blocks' memory and the generations of their slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from cluster.errors import ConfigError, PairingMismatch, TransferFailed
from cluster.kv_peer import KvPeer, KvRank

MAX_PEER_BLOCKS = 2**21
"""33 million tokens in blocks of 16: ten times what any machine holds. The transfer library keeps a
descriptor for each block of each peer."""


@dataclass(frozen=True, slots=True)
class LocalPool:
    """Borrowed tensors: they must outlive the transport. Raises ConfigError when unfit."""

    blocks: torch.Tensor  # [num_blocks, ...], contiguous, any dtype
    generations: torch.Tensor  # int64 [num_blocks], contiguous, in host memory

    def __post_init__(self) -> None:
        if self.blocks.dim() < 2 or not self.blocks.is_contiguous() or self.num_blocks < 1:
            raise ConfigError(
                f"a KV pool of shape {tuple(self.blocks.shape)} cannot be registered; it must be "
                "contiguous, [num_blocks, ...], with one block or more"
            )
        if (
            self.generations.shape != (self.num_blocks,)
            or self.generations.dtype != torch.int64
            or self.generations.is_cuda
        ):
            raise ConfigError(
                f"generations are {self.generations.dtype} {tuple(self.generations.shape)} on "
                f"{self.generations.device}; needed: int64 [{self.num_blocks}] in host memory"
            )

    @property
    def num_blocks(self) -> int:
        """Slots in the pool."""
        return int(self.blocks.shape[0])

    @property
    def block_bytes(self) -> int:
        """Size and stride of a block."""
        return self.blocks[0].numel() * self.blocks.element_size()

    @property
    def num_heads(self) -> int:
        """KV heads of a block [num_layers, num_planes, num_kv_heads, ...]; 1 of any other shape."""
        return int(self.blocks.shape[3]) if self.blocks.dim() == 6 else 1

    @property
    def memory(self) -> str:
        """ "VRAM" or "DRAM"."""
        return "VRAM" if self.blocks.is_cuda else "DRAM"

    @property
    def device_id(self) -> int:
        """Index of the GPU; 0 for host memory."""
        return self.blocks.get_device() if self.blocks.is_cuda else 0

    def describe(self, transport: str, agent_name: str, agent_metadata: bytes) -> KvPeer:
        """Where this pool can be read: by the one rank that there is, which has every head."""
        rank = KvRank(
            rank=0,
            first_head=0,
            num_heads=self.num_heads,
            agent_name=agent_name,
            agent_metadata=agent_metadata,
            pool_address=self.blocks.data_ptr(),
            block_bytes=self.block_bytes,
            memory=self.memory,
            device_id=self.device_id,
        )
        return KvPeer(
            transport=transport,
            num_blocks=self.num_blocks,
            generations_address=self.generations.data_ptr(),
            host=boot_id(),
            ranks=(rank,),
        )

    def check_peer(self, peer: KvPeer, transport: str) -> KvRank:
        """The rank to read. Raises PairingMismatch, with both values, unless its blocks fit into
        this pool; and when the peer has several ranks, whose parts are not put together yet."""
        if len(peer.ranks) != 1:
            raise PairingMismatch(
                f"a KV pool of {len(peer.ranks)} ranks cannot be read, only one of 1 rank; start "
                "the prefill worker without tensor parallelism"
            )
        (rank,) = peer.ranks
        for what, ours, theirs in (
            ("transport", transport, peer.transport),
            ("block_bytes", self.block_bytes, rank.block_bytes),
            ("num_heads", self.num_heads, rank.num_heads),
        ):
            if ours != theirs:
                raise PairingMismatch(
                    f"KV pool {rank.agent_name!r} cannot be read: {what} is {theirs!r} there and "
                    f"{ours!r} here; start both workers with the same model, dtype and transport"
                )
        if not 1 <= peer.num_blocks <= MAX_PEER_BLOCKS:
            raise PairingMismatch(
                f"KV pool {rank.agent_name!r} says it has {peer.num_blocks} blocks; allowed: 1 to "
                f"{MAX_PEER_BLOCKS}"
            )
        return rank


def check_block_ids(
    remote_block_ids: Sequence[int],
    local_block_ids: Sequence[int],
    *,
    num_remote: int,
    num_local: int,
) -> None:
    """Raises TransferFailed unless the ids are pairs of slots that both pools have."""
    if not remote_block_ids or len(remote_block_ids) != len(local_block_ids):
        raise TransferFailed(
            f"{len(remote_block_ids)} remote and {len(local_block_ids)} local blocks to read; "
            "needed: one or more pairs"
        )
    for side, ids, limit in (
        ("remote", remote_block_ids, num_remote),
        ("local", local_block_ids, num_local),
    ):
        if min(ids) < 0 or max(ids) >= limit:
            raise TransferFailed(
                f"{side} block ids reach from {min(ids)} to {max(ids)}; that pool has {limit} "
                "blocks, so they belong to another pool: connect again"
            )


def boot_id() -> str:
    """Equal for two processes only when they run on the same boot of the same machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
