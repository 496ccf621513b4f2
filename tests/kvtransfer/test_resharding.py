"""Every byte of a marked pool lands where a rank that computed it itself would have put it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cluster.block_homes import BlockHomes
from cluster.errors import TransferFailed
from cluster.granule import block_size_class, granule_tokens
from cluster.sharding import HeadSplit
from kvtransfer.resharding import BlockForm, Resharding, reshard
from tests.kvtransfer.sharded_pools import Bytes, MarkedCache, shares_of

GROUPS = (1, 2, 3, 4, 6, 8, 9)
SIZES = ((16, 16), (16, 64), (64, 16), (24, 16))
NUM_TOKENS = 192


def carried(fit: Resharding, sources: list[Bytes], like: Bytes) -> tuple[Bytes, Bytes]:
    """(the target's blocks, how often each of their bytes was written)."""
    target, writes = np.zeros_like(like), np.zeros_like(like)
    num_granules = len(like) * fit.target_parts
    for granule in range(num_granules):
        at, from_part = divmod(granule, fit.source_parts)
        to, part = divmod(granule, fit.target_parts)
        for run in fit.runs:
            first, start = run.source + from_part * run.step, run.target + part * run.step
            piece = sources[run.rank][at, first : first + run.num_bytes]
            target[to, start : start + run.num_bytes] = piece
            writes[to, start : start + run.num_bytes] += 1
    return target, writes


def check_every_rank(cache: MarkedCache, shares: tuple, sizes: tuple[int, int]) -> None:
    theirs, ours = shares
    forms = [cache.form(heads, sizes[0]) for heads in theirs]
    sources = [cache.blocks(form) for form in forms]
    for rank, heads in enumerate(ours):
        form = cache.form(heads, sizes[1])
        wanted = cache.blocks(form)
        assert wanted.shape[1] == form.block_bytes
        target, writes = carried(reshard(forms, form, asked_by=rank), sources, wanted)
        assert (writes == 1).all()
        assert (target == wanted).all()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 8])
def test_every_byte_lands_once_and_where_a_single_rank_would_put_it(
    num_heads: int, sizes: tuple[int, int]
) -> None:
    cache = MarkedCache(NUM_TOKENS, num_heads, num_planes=2, row_bytes=2)
    for p, d in itertools.product(GROUPS, GROUPS):
        check_every_rank(cache, (shares_of(num_heads, p), shares_of(num_heads, d)), sizes)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 8])
def test_a_rank_with_blocks_of_its_own_reads_all_heads_from_ranks_that_share_them(
    num_heads: int, sizes: tuple[int, int]
) -> None:
    cache = MarkedCache(NUM_TOKENS, num_heads, num_planes=2, row_bytes=2)
    for p, d in itertools.product(GROUPS, GROUPS):
        check_every_rank(cache, (shares_of(num_heads, p), [range(num_heads)] * d), sizes)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 8])
def test_of_ranks_that_share_blocks_the_home_of_a_block_is_read_for_all_of_its_bytes(
    num_heads: int, sizes: tuple[int, int]
) -> None:
    cache = MarkedCache(NUM_TOKENS, num_heads, num_planes=2, row_bytes=2)
    source = cache.form(range(num_heads), sizes[0])
    there = cache.blocks(source)
    for p, d in itertools.product(GROUPS, GROUPS):
        homes = BlockHomes(p, len(there))
        for rank, heads in enumerate(shares_of(num_heads, d)):
            form, home = cache.form(heads, sizes[1]), (rank + d) % p
            fit = replace(reshard([source], form, asked_by=rank), homes=homes)
            first = home * homes.blocks_each * fit.source_parts
            granules = range(first, first + len(there) * fit.source_parts)
            ((read, own),) = fit.by_rank(granules)
            assert read == home and list(own) == list(range(len(granules)))
            assert fit.ranks == tuple(range(p)) and fit.of_rank(home) == fit.runs
            wanted = cache.blocks(form)
            target, writes = carried(fit, [there], wanted)
            assert (writes == 1).all() and (target == wanted).all()


def test_blocks_of_two_homes_are_no_sequence() -> None:
    form = form_of(range(3))
    fit = replace(reshard([form], form, asked_by=0), homes=BlockHomes(3, 4))
    assert fit.by_rank([8, 11, 9]) == [(2, [0, 3, 1])]
    with pytest.raises(TransferFailed, match="blocks of ranks 0 and 1 were announced as one"):
        fit.by_rank([3, 4])


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_scales_of_a_quantized_pool_lie_behind_the_rows_of_their_own_block(
    sizes: tuple[int, int],
) -> None:
    cache = MarkedCache(NUM_TOKENS, 3, num_planes=2, row_bytes=3, scale_bytes=4)
    for p, d in itertools.product((1, 2, 3, 9), (1, 2, 3, 9)):
        check_every_rank(cache, (shares_of(3, p), shares_of(3, d)), sizes)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_latent_comes_from_any_rank_and_from_another_for_each_reader(
    sizes: tuple[int, int],
) -> None:
    cache = MarkedCache(NUM_TOKENS, 1, num_planes=2)
    for p, d in itertools.product(GROUPS, GROUPS):
        theirs, ours = (shares_of(1, size, is_latent=True) for size in (p, d))
        check_every_rank(cache, (theirs, ours), sizes)
        forms = [cache.form(heads, sizes[0]) for heads in theirs]
        target = cache.form(range(1), sizes[1])
        asked = [reshard(forms, target, asked_by=rank).ranks for rank in range(d)]
        assert len(set(asked)) == min(p, d) and all(len(ranks) == 1 for ranks in asked)


def test_who_is_read_is_the_owner_that_the_split_names() -> None:
    for num_heads, p, d in itertools.product((1, 2, 3, 4, 8), GROUPS, GROUPS):
        split = HeadSplit(num_heads=num_heads * 72, num_kv_heads=num_heads, world_size=p)
        forms = [form_of(split.kv_heads(rank)) for rank in range(p)]
        for rank, heads in enumerate(shares_of(num_heads, d)):
            fit = reshard(forms, form_of(heads), asked_by=rank)
            owners = {split.owner(head, asked_by=rank) for head in heads}
            assert set(fit.ranks) == owners


def form_of(heads: range, block_size: int = 16) -> BlockForm:
    return BlockForm(num_planes=4, heads=heads, block_size=block_size, row_bytes=8)


def test_equal_shares_are_read_as_one_run_and_neighbouring_heads_as_one_per_plane() -> None:
    form = form_of(range(3))
    (run,) = reshard([form], form, asked_by=0).runs
    assert (run.source, run.target, run.num_bytes) == (0, 0, form.block_bytes)
    part = reshard([form], form_of(range(1, 3)), asked_by=1)
    assert len(part.runs) == 4 and {run.num_bytes for run in part.runs} == {2 * 16 * 8}
    pieces = reshard([form], form_of(range(3), 64), asked_by=0)
    assert (pieces.source_parts, pieces.target_parts, len(pieces.runs)) == (1, 4, 12)


def test_a_head_that_nobody_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no rank holds KV head 2"):
        reshard([form_of(range(2))], form_of(range(3)), asked_by=0)


def test_block_sizes_that_are_multiples_of_eight_all_go_together_and_others_alone() -> None:
    sizes = (1, 4, 8, 12, 16, 20, 24, 64, 1024)
    for ours, theirs in itertools.product(sizes, sizes):
        tokens = granule_tokens(ours, theirs)
        assert (tokens is not None) == (block_size_class(ours) == block_size_class(theirs))
        if tokens is not None:
            assert ours % tokens == theirs % tokens == 0
            assert tokens == ours == theirs or tokens % 8 == 0
