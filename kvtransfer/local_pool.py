"""The local end of every transfer: the blocks' memory and the generations of their slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from cluster.block_homes import BlockHomes
from cluster.errors import ConfigError, PairingMismatch, TransferFailed
from cluster.granule import UNIT_TOKENS, granule_tokens
from cluster.kv_peer import KvPeer, KvRank
from cluster.kv_shape import KV_SCALE_BYTES
from cluster.models.head_share import HeadShare
from kvtransfer.resharding import BlockForm, Resharding, reshard

MAX_PEER_BLOCKS = 2**21
"""33 million tokens in blocks of 16: ten times what any machine holds. The transfer library keeps a
descriptor for each block of each peer."""

MAX_PEER_RANKS = 1024
"""More than any model has heads for."""


@dataclass(frozen=True, slots=True)
class LocalPool:
    """Borrowed tensors: they must outlive the transport. Raises ConfigError when unfit."""

    blocks: torch.Tensor  # [num_blocks, ...], contiguous, any dtype
    generations: torch.Tensor  # int64 [blocks of all homes], contiguous, in host memory
    share: HeadShare | None = None
    """Which heads these are; None: all that there are."""
    group: BlockHomes | None = None
    """Which rank of the group has which block; None: these are all that there are."""
    heads: HeadShare = field(init=False)
    """Of a block [num_layers, num_planes, num_kv_heads, ...]; of any other shape, one head."""
    form: BlockForm = field(init=False)
    """How the bytes of a block lie."""
    homes: BlockHomes = field(init=False)
    """Which rank has which block."""

    def __post_init__(self) -> None:
        if self.blocks.dim() < 2 or not self.blocks.is_contiguous() or self.num_blocks < 1:
            raise ConfigError(
                f"a KV pool of shape {tuple(self.blocks.shape)} cannot be registered; it must be "
                "contiguous, [num_blocks, ...], with one block or more"
            )
        homes = self.group or BlockHomes(1, self.num_blocks)
        if homes.blocks_each != self.num_blocks:
            raise ConfigError(
                f"a KV pool has {self.num_blocks} blocks, and each rank {homes.blocks_each}"
            )
        if (
            self.generations.shape != (homes.num_blocks,)
            or self.generations.dtype != torch.int64
            or self.generations.is_cuda
        ):
            raise ConfigError(
                f"generations are {self.generations.dtype} {tuple(self.generations.shape)} on "
                f"{self.generations.device}; needed: int64 [{homes.num_blocks}] in host memory"
            )
        object.__setattr__(self, "homes", homes)
        object.__setattr__(self, "heads", self.share or _all_heads(self.blocks))
        object.__setattr__(self, "form", _form_of(self.blocks, self.heads))

    @property
    def num_blocks(self) -> int:
        """Slots in the pool: of this rank."""
        return int(self.blocks.shape[0])

    @property
    def block_bytes(self) -> int:
        """Size and stride of a block."""
        return self.blocks[0].numel() * self.blocks.element_size()

    @property
    def block_size(self) -> int:
        """Tokens in a block; 1 where its shape does not tell."""
        return int(self.blocks.shape[4]) if self.blocks.dim() == 6 else 1

    @property
    def num_planes(self) -> int:
        """Of a block of the group: shared, and whole at its first rank."""
        return self.form.num_planes + self.heads.num_whole_layers * self.form.layer_planes

    @property
    def max_parts(self) -> int:
        """Granules of a block of this pool, at most."""
        return max(1, self.block_size // UNIT_TOKENS)

    @property
    def memory(self) -> str:
        """ "VRAM" or "DRAM"."""
        return "VRAM" if self.blocks.is_cuda else "DRAM"

    @property
    def device_id(self) -> int:
        """Index of the GPU; 0 for host memory."""
        return self.blocks.get_device() if self.blocks.is_cuda else 0

    def describe(self, transport: str, agent_name: str, agent_metadata: bytes) -> KvPeer:
        """Where this pool can be read, as if its rank were the only one: the ranks of a group are
        put together by its conductor, whose generations count."""
        heads = self.heads
        rank = KvRank(
            rank=heads.rank,
            first_head=heads.heads.start,
            num_heads=len(heads.heads),
            agent_name=agent_name,
            agent_metadata=agent_metadata,
            pool_address=self.blocks.data_ptr(),
            block_bytes=self.block_bytes,
            memory=self.memory,
            device_id=self.device_id,
        )
        return KvPeer(
            transport=transport,
            shares_blocks=self.homes.are_several,
            blocks_each=self.num_blocks,
            block_size_tokens=self.block_size,
            generations_address=self.generations.data_ptr(),
            host=boot_id(),
            ranks=(rank,),
        )

    def check_peer(self, peer: KvPeer, transport: str) -> Resharding:
        """How its blocks become this pool's. Raises PairingMismatch, with both values, unless they
        can."""
        _check_equal("transport", transport, peer.transport)
        has_whole = self.heads.num_whole_layers > 0
        if has_whole or granule_tokens(self.block_size, peer.block_size_tokens) is None:
            _check_equal("block_size_tokens", self.block_size, peer.block_size_tokens)
        if len(peer.ranks) > MAX_PEER_RANKS:
            raise PairingMismatch(
                f"a KV pool of {len(peer.ranks)} ranks cannot be read; allowed: {MAX_PEER_RANKS}"
            )
        if not 1 <= peer.num_blocks <= MAX_PEER_BLOCKS:
            raise PairingMismatch(
                f"a KV pool of {peer.num_blocks} blocks cannot be read; allowed: 1 to "
                f"{MAX_PEER_BLOCKS}"
            )
        sources = self._sources(peer)
        missing = [head for head in self.heads.heads if not any(head in s.heads for s in sources)]
        if missing:
            raise PairingMismatch(
                f"a KV pool of {len(peer.ranks)} ranks cannot be read: none of them has KV head "
                f"{missing[0]}; start both workers with the same model"
            )
        if self.form.num_whole and not any(source.num_whole for source in sources):
            raise PairingMismatch(
                f"a KV pool of {len(peer.ranks)} ranks cannot be read: it has no rank 0, which "
                "would have the head's layers; run the same version of splitserve on both"
            )
        fit = reshard(sources, self.form, asked_by=self.heads.rank)
        return replace(fit, homes=peer.homes) if peer.shares_blocks else fit

    def _sources(self, peer: KvPeer) -> list[BlockForm]:
        """Of every rank; of those that share blocks, which are all alike, of one."""
        sources = [self._source(rank, peer.block_size_tokens) for rank in peer.ranks]
        if not peer.shares_blocks:
            return sources
        if len(set(sources)) > 1:
            raise PairingMismatch(
                f"a KV pool of {len(sources)} ranks cannot be read: they share its blocks, and not "
                "all of them have the same KV heads; run the same version of splitserve on both"
            )
        return sources[:1]

    def _source(self, rank: KvRank, block_size: int) -> BlockForm:
        """A peer's rank, as this pool would lie there."""
        heads = range(rank.first_head, rank.first_head + rank.num_heads)
        num_heads = self.heads.num_heads
        if not 1 <= len(heads) <= heads.stop <= num_heads:
            raise PairingMismatch(
                f"KV pool {rank.agent_name!r} cannot be read: it has {len(heads)} KV heads from "
                f"{heads.start} on there and the model {num_heads} here; start both workers with "
                "the same model"
            )
        num_whole = _num_whole(replace(self.heads, rank=rank.rank), self.form.layer_planes)
        form = replace(self.form, heads=heads, block_size=block_size, num_whole=num_whole)
        _check_equal("block_bytes", form.block_bytes, rank.block_bytes)
        return form


def _all_heads(blocks: torch.Tensor) -> HeadShare:
    num_heads = int(blocks.shape[3]) if blocks.dim() == 6 else 1
    return HeadShare(0, range(num_heads), num_heads)


def _num_whole(share: HeadShare, layer_planes: int) -> int:
    """See BlockForm."""
    if share.rank != 0:
        return 0
    return share.num_whole_layers * layer_planes * share.num_heads


def _form_of(blocks: torch.Tensor, share: HeadShare) -> BlockForm:
    if blocks.dim() != 6:
        num_bytes = blocks[0].numel() * blocks.element_size()
        return BlockForm(num_planes=1, heads=range(1), block_size=1, row_bytes=num_bytes)
    _, num_layers, num_planes, num_heads, block_size, width = blocks.shape
    num_whole = _num_whole(share, num_planes)
    num_layers -= -(-num_whole // (num_planes * num_heads))
    scale_bytes = KV_SCALE_BYTES if blocks.element_size() == 1 else 0
    return BlockForm(
        num_planes=num_layers * num_planes,
        heads=share.heads,
        block_size=block_size,
        row_bytes=width * blocks.element_size() - scale_bytes,
        scale_bytes=scale_bytes,
        num_whole=num_whole,
        layer_planes=num_planes,
    )


def _check_equal(what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise PairingMismatch(
            f"a KV pool cannot be read: {what} is {theirs!r} there and {ours!r} here; start both "
            "workers with the same model, dtype and transport"
        )


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
