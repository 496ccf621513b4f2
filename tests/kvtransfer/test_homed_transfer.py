"""Blocks between groups of which either shares blocks or heads: read, verified, and by whom."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch

from cluster.block_span import BlockRun, BlockSpan
from cluster.errors import RankLost
from kvtransfer.group_reader import LIMIT_S
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackFaults, LoopbackNetwork, LoopbackTransport
from kvtransfer.read_job import ReadResult
from tests.kvtransfer.homed_pools import ExportingHomes, GroupKind, ReadingGroup, whole_peer
from tests.kvtransfer.ranked_pools import NUM_TOKENS, PrefillGroup, marked_cache

SIZES = ((16, 16), (16, 64), (64, 16))
KINDS = tuple(GroupKind(n, shares_blocks=shares) for n in (1, 2, 3) for shares in (False, True))
PAIRS = tuple(
    (theirs, ours)
    for theirs, ours in itertools.product(KINDS, KINDS)
    if theirs.num_homes > 1 or ours.num_homes > 1
)


class Handover:
    """A sequence that lies at one home there, and goes to one here."""

    def __init__(
        self,
        kinds: tuple[GroupKind, GroupKind],
        homes: tuple[int, int],
        sizes: tuple[int, int],
        *,
        num_heads: int = 3,
        is_quantized: bool = False,
    ) -> None:
        network = LoopbackNetwork()
        theirs, ours = kinds
        caches = [
            marked_cache(num_heads, is_quantized=is_quantized, seed=seed)
            for seed in range(theirs.num_homes)
        ]
        self.pools: list[LocalPool]
        """Of the ranks there."""
        self.parts = sizes[0] // min(sizes)
        self.whole = BlockRun(0, NUM_TOKENS // sizes[1])
        num_there = NUM_TOKENS // sizes[0]
        self.span: BlockSpan
        if theirs.shares_blocks:
            exporting = ExportingHomes(caches, sizes[0])
            self.pools = exporting.pools
            self.span = exporting.span(homes[0], 0, num_there, self.parts)
        else:
            group = PrefillGroup(caches[0], theirs.num_ranks, sizes[0], network)
            self.pools, self.span = group.pools, group.span(0, num_there, self.parts)
        self.reading = ReadingGroup(caches[homes[0]], ours, sizes[1], network)
        self.peer = whole_peer(
            [
                LoopbackTransport(pool, f"p{rank}", network=network).describe()
                for rank, pool in enumerate(self.pools)
            ]
        )
        self.home = homes[1]
        self.reading.reader.connect("p", self.peer)

    def read(self) -> ReadResult:
        """All of the sequence."""
        return self.reading.read(self.span, self.whole, self.home)

    def has_all(self) -> bool:
        """At everybody who is to have a part."""
        return all(rank.has(self.whole) for rank in self.reading.readers(self.home))

    def num_idle(self) -> int:
        """Ranks here into whose pool nothing was read."""
        return sum(not rank.pool.blocks.any() for rank in self.reading.ranks)


def every_handover(
    sizes: tuple[int, int], *, num_heads: int = 3, is_quantized: bool = False
) -> Iterator[Handover]:
    """From every home to every other."""
    for kinds in PAIRS:
        for homes in itertools.product(range(kinds[0].num_homes), range(kinds[1].num_homes)):
            yield Handover(kinds, homes, sizes, num_heads=num_heads, is_quantized=is_quantized)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("num_heads", [1, 3])
def test_a_sequence_goes_from_every_home_to_every_home_and_to_no_other_rank(
    num_heads: int, sizes: tuple[int, int]
) -> None:
    for handover in every_handover(sizes, num_heads=num_heads):
        result = handover.read()
        assert (result.error, result.verified) == ("", (range(handover.whole.num_blocks),))
        assert handover.has_all()
        ranks = handover.reading.ranks
        readers = handover.reading.readers(handover.home)
        assert handover.num_idle() == len(ranks) - len(readers)
        num_bytes = sum(rank.pool.block_bytes for rank in readers) * handover.whole.num_blocks
        assert result.num_bytes == num_bytes


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_blocks_of_a_quantized_pool_go_with_their_scales(sizes: tuple[int, int]) -> None:
    for handover in every_handover(sizes, is_quantized=True):
        assert handover.read().error == ""
        assert handover.has_all()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_flipped_bit_at_the_home_is_found_and_one_at_another_rank_is_nobody_s(
    sizes: tuple[int, int],
) -> None:
    two, three = (GroupKind(n, shares_blocks=True) for n in (2, 3))
    heads = GroupKind(2, shares_blocks=False)
    for kinds in ((three, two), (three, heads)):
        for home, spoiled in itertools.product(range(3), range(3)):
            handover = Handover(kinds, (home, kinds[1].num_homes - 1), sizes)
            handover.pools[spoiled].blocks[1].view(torch.uint8).view(-1)[-1] ^= 1
            result = handover.read()
            assert ("do not match" in result.error) == (home == spoiled)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_flipped_bit_at_any_rank_that_has_a_head_is_found_by_the_home_that_reads_it(
    sizes: tuple[int, int],
) -> None:
    kinds = GroupKind(3, shares_blocks=False), GroupKind(2, shares_blocks=True)
    for spoiled, home in itertools.product(range(3), range(2)):
        handover = Handover(kinds, (0, home), sizes)
        handover.pools[spoiled].blocks[1].view(torch.uint8).view(-1)[-1] ^= 1
        result = handover.read()
        assert result.error.startswith(f"rank {home}: ") and "do not match" in result.error


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_generations_of_every_home_are_rank_0_s(sizes: tuple[int, int]) -> None:
    kinds = GroupKind(3, shares_blocks=True), GroupKind(2, shares_blocks=True)
    lost = max(1, sizes[0] // sizes[1])
    for home in range(3):
        handover = Handover(kinds, (home, 1), sizes)
        counted = handover.pools[0].generations
        counted[handover.span.block_ids[0]] += 1
        counted[handover.peer.homes.ids_of((home + 1) % 3)] += 1  # another's
        handover.pools[2].generations.add_(1)  # nobody's
        result = handover.read()
        num_blocks = handover.whole.num_blocks
        assert f"rank 1: {lost} of {num_blocks} blocks from p were given" in result.error
        assert result.verified == (range(lost, num_blocks),)


def test_blocks_of_two_homes_are_refused_as_one_sequence() -> None:
    kinds = GroupKind(2, shares_blocks=True), GroupKind(2, shares_blocks=True)
    handover = Handover(kinds, (0, 0), (16, 16))
    handover.span.block_ids[-1] = handover.peer.homes.ids_of(1)[0]
    result = handover.read()
    assert "blocks of ranks 0 and 1 were announced as one sequence's" in result.error


def test_only_the_home_is_waited_for_and_told_of() -> None:
    kinds = GroupKind(2, shares_blocks=True), GroupKind(3, shares_blocks=True)
    handover = Handover(kinds, (1, 2), (16, 16))
    reading = handover.reading
    assert reading.reader.cancel("r") is False
    for rank in (0, 1):  # they have ended, and are asked nothing
        reading.ranks[rank].core.close()
    assert handover.read().error == ""
    assert not any(other.busy for other in reading.others)


@pytest.mark.parametrize("home", range(3))
def test_a_home_that_never_lets_go_is_lost_with_its_group(home: int) -> None:
    kinds = GroupKind(2, shares_blocks=True), GroupKind(3, shares_blocks=True)
    handover = Handover(kinds, (1, home), (16, 16))
    reading = handover.reading
    for rank in reading.ranks:
        rank.transport.faults = NothingLands()
    reading.submit(handover.span, handover.whole, home)
    assert reading.reader.poll() == [] and reading.reader.cancel("r")
    with pytest.raises(RankLost, match=f"rank {home} has not let go of blocks") as lost:
        for _ in range(int(2 * LIMIT_S)):
            reading.clock.advance(1.0)
            assert reading.reader.poll() == []
    assert lost.value.ranks == (home,)


class NothingLands(LoopbackFaults):
    """Every read stays under way."""

    __slots__ = ()

    def num_landing(self, peer: str, num_under_way: int) -> int:
        return 0
