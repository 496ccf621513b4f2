"""A prefill group with a marked cache in its pools, and decode ranks that read their part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from cluster.block_homes import BlockHomes
from cluster.block_span import BlockRun, BlockSpan
from cluster.kv_peer import KvPeer
from cluster.models.head_share import HeadShare
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_read import ReadTools
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackFaults, LoopbackNetwork, LoopbackTransport
from kvtransfer.read_job import ReadJob, ReadResult
from kvtransfer.reader_core import ReaderCore
from kvtransfer.verification import digest_parts, packed_digests
from tests.kvtransfer.sharded_pools import MarkedCache, shares_of

NUM_TOKENS = 192
LAYERS, PLANES = 2, 2


def marked_cache(
    num_heads: int, *, is_quantized: bool = False, seed: int = 0, whole_layers: int = 0
) -> MarkedCache:
    """Rows of 16 bytes; of a quantized one, of 16 and a scale. `whole_layers`: further ones, which
    rank 0 has whole."""
    return MarkedCache(
        NUM_TOKENS,
        num_heads,
        num_planes=(LAYERS + whole_layers) * PLANES,
        row_bytes=16,
        scale_bytes=4 if is_quantized else 0,
        seed=seed,
    )


def pool_of(cache: MarkedCache, share: HeadShare, block_size: int) -> LocalPool:
    """As that rank holds it: slot i has block i of the sequence; generations count from 100."""
    edge, num_held = LAYERS * PLANES, len(share.heads)
    shared, whole = cache.planes(slice(edge)), cache.planes(slice(edge, None))
    packed = torch.from_numpy(shared.blocks(form := shared.form(share.heads, block_size)))
    num_layers = LAYERS
    if share.num_whole_layers and share.rank == 0:
        num_layers += -(-share.num_whole_layers * share.num_heads // num_held)
        rest = whole.blocks(whole.form(range(share.num_heads), block_size))
        filled = torch.zeros(len(packed), num_layers * PLANES * num_held * form.head_bytes)
        filled = filled.to(torch.uint8)
        filled[:, : packed.shape[1]] = packed
        filled[:, packed.shape[1] : packed.shape[1] + rest.shape[1]] = torch.from_numpy(rest)
        packed = filled
    shape = (len(packed), num_layers, PLANES, num_held, block_size)
    is_quantized = cache.scales.shape[3] > 0
    blocks = packed.view(torch.int8 if is_quantized else torch.int16).view(*shape, -1)
    return LocalPool(blocks.clone(), torch.arange(len(packed)) + 100, share)


def ranks_of(num_heads: int, world_size: int, whole_layers: int = 0) -> list[HeadShare]:
    """Of a group; one head is a latent."""
    shares = shares_of(num_heads, world_size, is_latent=num_heads == 1)
    return [HeadShare(rank, heads, num_heads, whole_layers) for rank, heads in enumerate(shares)]


class PrefillGroup:
    """Exports over the loopback; `block_size` is its own."""

    def __init__(
        self, cache: MarkedCache, world_size: int, block_size: int, network: LoopbackNetwork
    ) -> None:
        num_heads = cache.values.shape[2]
        self.block_size = block_size
        whole_layers = cache.values.shape[1] // PLANES - LAYERS
        shares = ranks_of(num_heads, world_size, whole_layers)
        self.pools = [pool_of(cache, share, block_size) for share in shares]
        self.transports = [
            LoopbackTransport(pool, f"p{rank}", network=network)
            for rank, pool in enumerate(self.pools)
        ]
        (alone,) = ranks_of(num_heads, 1, whole_layers)
        self._whole = pool_of(cache, alone, block_size)

    def peer(self) -> KvPeer:
        """All ranks as one."""
        described = [transport.describe() for transport in self.transports]
        return replace(described[0], ranks=tuple(peer.ranks[0] for peer in described))

    def span(self, first: int, last: int, parts: int) -> BlockSpan:
        """A truthful announcement of its blocks [first, last), with digests of all heads."""
        ids = list(range(first, last))
        digests = packed_digests(digest_parts(block_digest, self._whole.blocks, ids, parts))
        return BlockSpan(first, ids, [100 + index for index in ids], digests)


class DecodeRank:
    """Reads into slots in the reverse order of the sequence."""

    def __init__(
        self,
        cache: MarkedCache,
        share: HeadShare,
        block_size: int,
        network: LoopbackNetwork,
        faults: LoopbackFaults | None = None,
        num_homes: int = 1,
    ) -> None:
        """`num_homes`: of the blocks of its group."""
        self.wanted = pool_of(cache, share, block_size).blocks.flip(0)
        blocks = torch.zeros_like(self.wanted).contiguous()
        homes = BlockHomes(num_homes, len(blocks))
        generations = torch.zeros(homes.num_blocks, dtype=torch.int64)
        self.pool = LocalPool(blocks, generations, share, homes)
        self.transport = LoopbackTransport(
            self.pool, f"d{share.rank}", network=network, faults=faults
        )
        tools = ReadTools(
            transport=self.transport, pool=self.pool, digest=block_digest, span_blocks=2
        )
        self.core = ReaderCore(tools, patience_s=10.0, clock=lambda: 0.0)

    def slots(self, run: BlockRun) -> list[int]:
        """Of blocks of the sequence."""
        last = self.pool.num_blocks - 1
        return [last - index for index in range(run.first_index, run.end_index)]

    def read(self, span: BlockSpan, run: BlockRun, *, max_turns: int = 200) -> ReadResult:
        """One job of the connected peer "p"."""
        job = ReadJob(
            request_id="r",
            incarnation="p",
            span=span,
            local_block_ids=self.slots(run),
            into=run,
        )
        self.core.submit(job)
        results: Sequence[ReadResult] = ()
        for _ in range(max_turns):
            results = self.core.poll()
            if results:
                return results[0]
        raise AssertionError("the read did not end")

    def has(self, run: BlockRun) -> bool:
        """Whether these blocks are as this rank would have computed them."""
        slots = self.slots(run)
        return torch.equal(self.pool.blocks[slots], self.wanted[slots])
