"""Pools of groups of unequal ranks and block sizes, read and verified rank by rank."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from cluster.block_span import BlockRun
from cluster.errors import PairingMismatch
from kvtransfer.loopback import LoopbackFaults, LoopbackNetwork
from tests.kvtransfer.ranked_pools import (
    NUM_TOKENS,
    DecodeRank,
    PrefillGroup,
    marked_cache,
    ranks_of,
)

SIZES = ((16, 16), (16, 64), (64, 16))


class Scene:
    """A group of P ranks that exports, and D ranks of another that are connected to it."""

    def __init__(
        self,
        groups: tuple[int, int],
        sizes: tuple[int, int],
        *,
        num_heads: int = 3,
        is_quantized: bool = False,
        faults: LoopbackFaults | None = None,
        whole_layers: int = 0,
    ) -> None:
        network = LoopbackNetwork()
        cache = marked_cache(num_heads, is_quantized=is_quantized, whole_layers=whole_layers)
        self.source = PrefillGroup(cache, groups[0], sizes[0], network)
        self.ranks = [
            DecodeRank(cache, share, sizes[1], network, faults)
            for share in ranks_of(num_heads, groups[1], whole_layers)
        ]
        for rank in self.ranks:
            rank.core.connect("p", self.source.peer())
        self.parts = sizes[0] // min(sizes)
        self.num_there, self.num_here = (NUM_TOKENS // size for size in sizes)

    @property
    def whole(self) -> BlockRun:
        return BlockRun(0, self.num_here)

    def read_all(self) -> list[str]:
        """The errors of the ranks."""
        span = self.source.span(0, self.num_there, self.parts)
        return [rank.read(span, self.whole).error for rank in self.ranks]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("num_heads", [1, 3])
def test_every_rank_has_its_heads_of_every_block_and_has_verified_them(
    num_heads: int, sizes: tuple[int, int]
) -> None:
    for groups in itertools.product((1, 2, 3, 9), (1, 2, 3, 9)):
        scene = Scene(groups, sizes, num_heads=num_heads)
        assert scene.read_all() == [""] * groups[1]
        assert all(rank.has(scene.whole) for rank in scene.ranks)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_blocks_of_a_quantized_pool_are_verified_with_their_scales(sizes: tuple[int, int]) -> None:
    for groups in itertools.product((1, 2, 3), (1, 2, 3)):
        scene = Scene(groups, sizes, is_quantized=True)
        assert scene.read_all() == [""] * groups[1]
        assert all(rank.has(scene.whole) for rank in scene.ranks)


@pytest.mark.parametrize("is_quantized", [False, True], ids=["plain", "quantized"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_flipped_bit_in_any_rank_is_found_by_exactly_those_who_read_it(
    sizes: tuple[int, int], is_quantized: bool
) -> None:
    for groups in itertools.product((1, 2, 3, 9), (1, 2, 3, 9)):
        for spoiled in range(groups[0]):
            scene = Scene(groups, sizes, is_quantized=is_quantized)
            pool = scene.source.pools[spoiled]
            pool.blocks[1].view(torch.uint8).view(-1)[-1] ^= 1  # of its last head and token
            head = pool.heads.heads[-1]
            readers = [
                rank.pool.heads.rank
                for rank in scene.ranks
                if head in rank.pool.heads.heads and spoiled in rank.core._links["p"].fit.ranks
            ]
            errors = scene.read_all()
            found = [at for at, error in enumerate(errors) if "do not match" in error]
            assert found == readers


@pytest.mark.parametrize("is_quantized", [False, True], ids=["plain", "quantized"])
@pytest.mark.parametrize("num_heads", [1, 3, 5])
def test_layers_that_rank_0_has_whole_go_from_it_to_it_whatever_the_ranks_are(
    num_heads: int, is_quantized: bool
) -> None:
    """Of five heads two are rank 0's of two, and its last layer is filled up."""
    kind: dict[str, Any] = {"num_heads": num_heads, "is_quantized": is_quantized, "whole_layers": 3}
    for groups in itertools.product((1, 2, 3, 9), (1, 2, 3, 9)):
        scene = Scene(groups, (16, 16), **kind)
        assert scene.read_all() == [""] * groups[1]
        assert all(rank.has(scene.whole) for rank in scene.ranks)
        assert all(rank.pool.form.block_bytes == rank.pool.block_bytes for rank in scene.ranks)
    (alone,) = Scene((1, 1), (16, 16), **kind).ranks
    assert len(alone.core._links["p"].fit.runs) == 1


def test_a_flipped_bit_in_a_whole_layer_is_found_by_rank_0() -> None:
    for groups in itertools.product((1, 2, 3), (1, 2, 3)):
        scene = Scene(groups, (16, 16), num_heads=5, whole_layers=3)
        pool = scene.source.pools[0]
        form = pool.form
        last = (form.num_shared + form.num_whole) * form.head_bytes - 1
        pool.blocks[1].view(torch.uint8).view(-1)[last] ^= 1
        first, *others = scene.read_all()
        assert "1 of 12 blocks from p do not match" in first and not any(others)


def test_a_group_without_those_layers_or_with_blocks_of_another_size_is_refused() -> None:
    scene, plain = Scene((2, 2), (16, 16), whole_layers=3), Scene((2, 2), (16, 16))
    peer = scene.source.peer()
    small = replace(peer, block_size_tokens=8)
    for ours, theirs, words in (
        (scene, plain.source.peer(), "block_bytes"),
        (plain, peer, "block_bytes"),
        (scene, small, "block_size_tokens is 8 there and 16 here"),
    ):
        with pytest.raises(PairingMismatch, match=words):
            ours.ranks[0].pool.check_peer(theirs, "loopback")
    latent = Scene((2, 1), (16, 16), num_heads=1, whole_layers=3)
    second = replace(latent.source.peer(), ranks=latent.source.peer().ranks[1:])
    with pytest.raises(PairingMismatch, match="it has no rank 0"):
        latent.ranks[0].pool.check_peer(second, "loopback")


@pytest.mark.parametrize("groups", [(1, 1), (3, 2), (2, 3)], ids=str)
def test_a_quarter_of_a_block_is_checked_by_itself(groups: tuple[int, int]) -> None:
    """The blocks before it are in the reader's cache, with bits of their own."""
    scene = Scene(groups, (64, 16))
    run = BlockRun(3, 2)  # the last quarter of one block there, and the first of the next
    for rank in scene.ranks:
        assert rank.read(scene.source.span(0, 2, 4), run).error == ""
        assert rank.has(run)
        assert not rank.pool.blocks[rank.slots(BlockRun(0, 3))].any()
        assert not rank.pool.blocks[rank.slots(BlockRun(5, 7))].any()


@pytest.mark.parametrize("groups", [(1, 1), (3, 2), (2, 3)], ids=str)
def test_of_the_last_block_only_what_the_prompt_has_is_read(groups: tuple[int, int]) -> None:
    scene = Scene(groups, (16, 64))
    run = BlockRun(1, 2)
    for rank in scene.ranks:
        result = rank.read(scene.source.span(4, 10, 1), run)
        assert (result.error, result.verified) == ("", (range(1, 3),))
        assert result.num_bytes == rank.pool.block_bytes * 6 // 4
        assert rank.has(BlockRun(1, 1)) and not rank.has(BlockRun(2, 1))
        (slot,) = rank.slots(BlockRun(2, 1))
        read, wanted = rank.pool.blocks[slot], rank.wanted[slot]
        assert torch.equal(read[..., :32, :], wanted[..., :32, :])
        assert not read[..., 32:, :].any()


@pytest.mark.parametrize(
    ("span", "run"),
    [((0, 3), BlockRun(0, 2)), ((1, 8), BlockRun(0, 2)), ((0, 4), BlockRun(1, 1))],
    ids=str,
)
def test_a_job_whose_blocks_are_not_those_of_its_span_is_refused(
    span: tuple[int, int], run: BlockRun
) -> None:
    scene = Scene((1, 1), (16, 64))
    result = scene.ranks[0].read(scene.source.span(*span, 1), run)
    assert "malformed job" in result.error and result.verified == ()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_slot_that_was_given_away_at_rank_0_is_refused_by_every_rank(
    sizes: tuple[int, int],
) -> None:
    scene = Scene((3, 2), sizes)
    span = scene.source.span(0, scene.num_there, scene.parts)
    scene.source.pools[0].generations[0] += 1
    scene.source.pools[1].generations[1] += 1  # nobody's: generations are rank 0's
    share = max(1, sizes[0] // sizes[1])
    for rank in scene.ranks:
        result = rank.read(span, scene.whole)
        assert f"{share} of {scene.num_here} blocks from p were given to another" in result.error
        assert result.verified == (range(share, scene.num_here),)


def test_digests_of_another_number_of_heads_or_parts_are_refused() -> None:
    scene = Scene((1, 1), (64, 16))
    result = scene.ranks[0].read(scene.source.span(0, 3, 1), scene.whole)
    assert "bytes of digests for 3 blocks" in result.error


class OneRank(LoopbackFaults):
    """What happens to reads from one rank of the peer."""

    __slots__ = ("breaking", "held", "refusing")

    def __init__(self) -> None:
        self.held = self.breaking = self.refusing = ""

    def num_landing(self, peer: str, num_under_way: int) -> int:
        return 0 if peer == self.held else num_under_way

    def breaks(self, peer: str) -> bool:
        return peer == self.breaking

    def refuses(self, peer: str) -> bool:
        return peer == self.refusing


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("how", ["breaking", "refusing"])
def test_when_one_rank_cannot_be_read_all_of_the_read_is_cut_off_before_it_ends(
    how: str, sizes: tuple[int, int]
) -> None:
    faults = OneRank()
    scene = Scene((3, 1), sizes, faults=faults)
    setattr(faults, how, "p2")
    (rank,) = scene.ranks
    span = scene.source.span(0, scene.num_there, scene.parts)
    result = rank.read(span, scene.whole)
    assert "on purpose" in result.error and result.verified == ()
    before = rank.pool.blocks.clone()
    rank.transport.go_on()
    assert torch.equal(rank.pool.blocks, before)


def test_a_read_is_over_only_when_the_last_rank_s_part_has_landed() -> None:
    faults = OneRank()
    scene = Scene((3, 1), (16, 16), faults=faults)
    faults.held = "p1"
    (rank,) = scene.ranks
    span = scene.source.span(0, scene.num_there, scene.parts)
    with pytest.raises(AssertionError, match="did not end"):
        rank.read(span, scene.whole, max_turns=20)
    faults.held = ""
    results = [result for _ in range(50) for result in rank.core.poll()]
    assert [result.error for result in results] == [""] and rank.has(scene.whole)
