"""A group of ranks over NIXL: several agents, pieces of blocks, one set of generations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch

from cluster.block_span import BlockRun
from cluster.identity import new_incarnation
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackNetwork
from kvtransfer.nixl_transport import NixlTransport
from kvtransfer.read_job import ReadJob, ReadResult
from tests.kvtransfer.homed_pools import ExportingHomes
from tests.kvtransfer.kv_blocks import collect
from tests.kvtransfer.ranked_pools import (
    NUM_TOKENS,
    PrefillGroup,
    marked_cache,
    pool_of,
    ranks_of,
)
from tests.kvtransfer.sharded_pools import MarkedCache


class NixlGroups:
    """Ranks of a prefill group and of a decode group, each with agents of its own."""

    def __init__(
        self,
        groups: tuple[int, int],
        sizes: tuple[int, int],
        closers: ExitStack,
        *,
        exported: Sequence[LocalPool] = (),
        wanted: MarkedCache | None = None,
    ) -> None:
        """`exported`: other pools than those of a group that shares heads, of which `wanted` is to
        be read."""
        cache = wanted or marked_cache(3)
        self.source = PrefillGroup(cache, groups[0], sizes[0], LoopbackNetwork())
        pools = exported or self.source.pools
        self.exports = [NixlTransport(pool, new_incarnation()) for pool in pools]
        described = [export.describe() for export in self.exports]
        self.peer = replace(described[0], ranks=tuple(peer.ranks[0] for peer in described))
        self.wanted = [pool_of(cache, share, sizes[1]).blocks for share in ranks_of(3, groups[1])]
        self.pools = [
            LocalPool(torch.zeros_like(blocks), torch.zeros(len(blocks), dtype=torch.int64), share)
            for blocks, share in zip(self.wanted, ranks_of(3, groups[1]), strict=True)
        ]
        self.readers = [
            BlockReader(NixlTransport(pool, new_incarnation()), pool, block_digest)
            for pool in self.pools
        ]
        for transport in self.exports:
            closers.callback(transport.close)
        for reader in self.readers:
            closers.callback(reader.close)
            reader.connect("p", self.peer)
        self.span = self.source.span(0, NUM_TOKENS // sizes[0], sizes[0] // min(sizes))

    def read(self, rank: int) -> ReadResult:
        num_blocks = self.pools[rank].num_blocks
        self.readers[rank].submit(
            ReadJob(
                request_id="r",
                incarnation="p",
                span=self.span,
                local_block_ids=range(num_blocks),
                into=BlockRun(0, num_blocks),
            )
        )
        (result,) = collect(self.readers[rank], 1)
        return result


@pytest.fixture
def closers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("sizes", [(16, 16), (16, 64), (64, 16)], ids=str)
@pytest.mark.parametrize("groups", [(1, 1), (3, 1), (1, 3), (2, 3), (3, 2)], ids=str)
def test_every_rank_reads_and_verifies_its_heads(
    groups: tuple[int, int], sizes: tuple[int, int], closers: ExitStack
) -> None:
    scene = NixlGroups(groups, sizes, closers)
    for rank, pool in enumerate(scene.pools):
        assert scene.read(rank).error == ""
        assert torch.equal(pool.blocks, scene.wanted[rank])


def test_a_flipped_bit_and_a_moved_block_are_found_by_those_who_read_them(
    closers: ExitStack,
) -> None:
    scene = NixlGroups((2, 2), (16, 64), closers)
    scene.source.pools[1].blocks[0].view(torch.uint8).view(-1)[-1] ^= 1
    assert scene.read(0).error == ""
    assert "1 of 3 blocks from p do not match" in scene.read(1).error
    scene.source.pools[0].generations[11] += 1
    result = scene.read(0)
    assert "1 of 3 blocks from p were given to another sequence" in result.error
    assert result.verified == (range(0, 2),)


@pytest.mark.parametrize("sizes", [(16, 16), (16, 64)], ids=str)
def test_a_sequence_of_one_rank_is_read_from_it_by_all_who_want_a_part(
    sizes: tuple[int, int], closers: ExitStack
) -> None:
    caches = [marked_cache(3, seed=home) for home in range(2)]
    source, num_there = ExportingHomes(caches, sizes[0]), NUM_TOKENS // sizes[0]
    scene = NixlGroups((2, 2), sizes, closers, exported=source.pools, wanted=caches[1])
    scene.span = source.span(1, 0, num_there, 1)
    for rank, pool in enumerate(scene.pools):
        assert scene.read(rank).error == ""
        assert torch.equal(pool.blocks, scene.wanted[rank])
    source.generations[scene.span.block_ids[-1]] += 1
    assert "were given to another sequence" in scene.read(0).error
    scene.span = source.span(0, 0, num_there, 1)
    assert scene.read(0).error == ""
    assert not torch.equal(scene.pools[0].blocks, scene.wanted[0])


def test_a_rank_that_shares_blocks_is_connected_when_it_is_first_read(closers: ExitStack) -> None:
    caches = [marked_cache(3, seed=home) for home in range(3)]
    source = ExportingHomes(caches, 16)
    scene = NixlGroups((3, 1), (16, 16), closers, exported=source.pools, wanted=caches[1])
    first, second, third = scene.peer.ranks
    broken = replace(scene.peer, ranks=(first, second, replace(third, agent_metadata=b"garbage")))
    scene.readers[0].connect("p", broken)
    spans = [source.span(home, 0, NUM_TOKENS // 16, 1) for home in range(3)]
    for home, error in ((1, ""), (2, "cannot connect"), (0, ""), (1, "")):
        scene.span = spans[home]
        found = scene.read(0).error
        assert error in found and bool(error) == bool(found)
    assert torch.equal(scene.pools[0].blocks, scene.wanted[0])


def test_a_rank_that_is_gone_fails_the_read_of_those_who_need_it(closers: ExitStack) -> None:
    scene = NixlGroups((3, 3), (16, 16), closers)
    assert scene.read(2).error == ""
    scene.exports[2].close()
    assert scene.read(1).error == ""
    scene.readers[2].disconnect("p")
    scene.readers[2].connect("p", scene.peer)
    assert scene.read(2).error != ""


def test_a_peer_with_unreadable_metadata_at_one_rank_is_refused_and_leaves_nothing(
    closers: ExitStack,
) -> None:
    scene = NixlGroups((2, 1), (16, 16), closers)
    first, second = scene.peer.ranks
    broken = replace(scene.peer, ranks=(first, replace(second, agent_metadata=b"garbage")))
    scene.readers[0].connect("p", broken)
    assert "cannot connect" in scene.read(0).error
    scene.readers[0].connect("p", scene.peer)
    assert scene.read(0).error == ""
