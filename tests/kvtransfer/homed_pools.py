"""Groups that share blocks or heads on either side: one that exports, and one that reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from cluster.block_homes import BlockHomes
from cluster.block_span import BlockRun, BlockSpan
from cluster.kv_peer import KvPeer
from cluster.models.head_share import HeadShare
from kernels.dispatch.block_digest import block_digest
from kvtransfer.group_reader import GroupReader
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackNetwork
from kvtransfer.rank_reader import RankReader
from kvtransfer.read_job import ReadJob, ReadResult
from kvtransfer.verification import digest_parts, packed_digests
from tests.kvtransfer.hand_line import Line
from tests.kvtransfer.ranked_pools import NUM_TOKENS, DecodeRank, pool_of, ranks_of
from tests.kvtransfer.sharded_pools import MarkedCache
from tests.manual_clock import ManualClock

MAX_TURNS = 200


@dataclass(frozen=True, slots=True)
class GroupKind:
    """Of a group under test."""

    num_ranks: int
    shares_blocks: bool

    @property
    def num_homes(self) -> int:
        """Of its blocks."""
        return self.num_ranks if self.shares_blocks else 1

    def shares(self, num_heads: int, whole_layers: int = 0) -> list[HeadShare]:
        """Of its ranks."""
        if self.shares_blocks:
            return [HeadShare(at, range(num_heads), num_heads) for at in range(self.num_ranks)]
        return ranks_of(num_heads, self.num_ranks, whole_layers)

    def __str__(self) -> str:
        return f"{self.num_ranks} {'blocks' if self.shares_blocks else 'heads'}"


class ExportingHomes:
    """Ranks that share blocks: each has a sequence of its own, all blocks in order."""

    def __init__(self, caches: list[MarkedCache], block_size: int) -> None:
        num_heads = caches[0].values.shape[2]
        self.homes = BlockHomes(len(caches), NUM_TOKENS // block_size)
        self.generations = torch.arange(self.homes.num_blocks) + 100
        shares = GroupKind(len(caches), shares_blocks=True).shares(num_heads)
        self.pools = [
            LocalPool(
                pool_of(cache, share, block_size).blocks,
                self.generations if share.rank == 0 else torch.zeros_like(self.generations),
                share,
                self.homes,
            )
            for cache, share in zip(caches, shares, strict=True)
        ]

    def span(self, home: int, first: int, last: int, parts: int) -> BlockSpan:
        """A truthful announcement of blocks [first, last) of that rank's sequence."""
        pool, ids = self.pools[home].blocks, list(range(first, last))
        digests = packed_digests(digest_parts(block_digest, pool, ids, parts))
        ids = [self.homes.ids_of(home)[at] for at in ids]
        return BlockSpan(first, ids, self.generations[ids].tolist(), digests)


def whole_peer(described: list[KvPeer]) -> KvPeer:
    """All ranks as one."""
    return replace(described[0], ranks=tuple(peer.ranks[0] for peer in described))


class ReadingGroup:
    """Ranks with empty pools, which expect `cache`; `home` is where the sequence goes."""

    def __init__(
        self, cache: MarkedCache, kind: GroupKind, block_size: int, network: LoopbackNetwork
    ) -> None:
        shares = kind.shares(cache.values.shape[2])
        self.ranks = [
            DecodeRank(cache, share, block_size, network, num_homes=kind.num_homes)
            for share in shares
        ]
        self.homes = self.ranks[0].pool.homes
        self.line = Line(kind.num_ranks)
        self.clock = ManualClock()
        self.reader = GroupReader(
            self.ranks[0].core, self.line, kind.num_ranks, homes=self.homes, clock=self.clock
        )
        self.others = [RankReader(rank.core, at) for at, rank in enumerate(self.ranks) if at]

    def read(
        self, span: BlockSpan, run: BlockRun, home: int, *, max_turns: int = 200
    ) -> ReadResult:
        """One job of the connected peer "p"."""
        job = self.submit(span, run, home)
        for _ in range(MAX_TURNS):
            for rank, (other, words) in enumerate(zip(self.others, self.line.told, strict=True), 1):
                while words:
                    other.handle(words.popleft())
                self.line.said += [(rank, word) for word in other.poll()]
            if results := self.reader.poll():
                (result,) = results
                assert result.job is job
                return result
        raise AssertionError("the read did not end")

    def submit(self, span: BlockSpan, run: BlockRun, home: int) -> ReadJob:
        """The same, and nobody is turned."""
        first = self.homes.ids_of(home).start
        job = ReadJob(
            request_id="r",
            incarnation="p",
            span=span,
            local_block_ids=[first + slot for slot in self.ranks[home].slots(run)],
            into=run,
        )
        self.reader.submit(job)
        return job

    def readers(self, home: int) -> list[DecodeRank]:
        """Who has a part of that home's blocks."""
        return [self.ranks[home]] if self.homes.are_several else self.ranks
