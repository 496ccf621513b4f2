"""The Triton attention of a few query rows per sequence, as a step that verifies drafts has them.

Tiles are made small, so that short contexts have many splits and several tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from kernels.dispatch.kernel_sets import REFERENCE
from kernels.kv_rows import write_rows
from kernels.paged_queries import PagedQueryTables
from kernels.triton import decode_attention, verify_attention
from kernels.triton.gpu import HOPPER
from kernels.triton.tuning import DecodeTiles, HeadsShape, decode_tiles, verify_tiles
from tests.kernels.gpus import ADA, AMPERE, BLACKWELL
from tests.kernels.kernel_sets import paged_queries, random, random_pool_layer, tolerance
from tests.kernels.triton_places import PLACES, Place
from tests.kernels.triton_places import kernels as triton_kernels

BLOCK = 8
SMALL_SPLITS = DecodeTiles(
    chunk=16, min_split=32, max_splits=4, num_warps=4, num_stages=2, programs_per_processor=1
)
CONTEXTS = [4, 31, 33, 34, 35, 70, 128, 150]
"""Around the ends of splits, and beyond what splits of one length cover."""
FEW_CONTEXTS = [4, 33, 70, 150]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two tokens a tile at most."""
    monkeypatch.setattr(decode_attention, "decode_tiles", lambda *_: SMALL_SPLITS)
    monkeypatch.setattr(
        verify_attention, "verify_tiles", lambda heads, each, gpu: (min(2, each), SMALL_SPLITS)
    )
    yield


def drafts(contexts: list[int], each: int, device: str) -> PagedQueryTables:
    """As many rows of every sequence."""
    num_blocks = sum(-(-context // BLOCK) for context in contexts) + 1
    queries = paged_queries([(each, context) for context in contexts], num_blocks, BLOCK)
    return replace(
        queries,
        query_starts=queries.query_starts.to(device),
        context_lens=queries.context_lens.to(device),
        block_tables=queries.block_tables.to(device),
        num_decodes=0,
        rows_each=each,
    )


def heads(head_dim: int = 128, group: int = 4, value_bytes: int = 2) -> HeadsShape:
    """Of queries in 16 bits, or as the pool."""
    return HeadsShape(
        head_dim=head_dim,
        group=group,
        num_kv_heads=8,
        query_bytes=max(2, value_bytes),
        value_bytes=value_bytes,
    )


def pool(
    queries: PagedQueryTables, num_kv_heads: int, dim: int, dtype: torch.dtype
) -> torch.Tensor:
    """A layer of a pool of any dtype."""
    num_blocks, device = int(queries.block_tables.max()) + 1, queries.block_tables.device
    rows = random_pool_layer(num_blocks, num_kv_heads, BLOCK, dim, torch.float32)
    if dtype.itemsize > 1:
        return rows.to(dtype).to(device)
    layer = torch.zeros(num_blocks, 2, num_kv_heads, BLOCK, dim + 4, dtype=dtype)
    for plane in range(2):
        slots = torch.arange(num_blocks * BLOCK)
        write_rows(layer, plane, slots, rows[:, plane].transpose(1, 2).flatten(0, 1))
    return layer.to(device)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("window", "num_heads", "num_kv_heads", "head_dim", "each"),
    [
        (None, 3, 1, 32, 3),
        (None, 2, 2, 16, 4),
        (1, 2, 2, 16, 3),
        (9, 4, 2, 16, 2),
        (9, 4, 2, 16, 4),
        (40, 5, 1, 24, 3),
    ],
)
def test_rows_see_what_is_before_them_and_themselves_through_any_window(
    window: int | None, num_heads: int, num_kv_heads: int, head_dim: int, each: int, place: Place
) -> None:
    queries = drafts(CONTEXTS, each, place[0])
    query = random(len(CONTEXTS) * each, num_heads, head_dim, dtype=place[1]).to(place[0])
    layer = pool(queries, num_kv_heads, head_dim, place[1])
    ours = triton_kernels().paged_attention(query, layer, queries, 0.3, window)
    expected = REFERENCE.paged_attention(query, layer, queries, 0.3, window)
    torch.testing.assert_close(ours, expected, **tolerance(place[1]))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kv_dtype", [torch.int8, torch.float8_e4m3fn])
def test_a_quantized_pool_is_read_with_its_scales(kv_dtype: torch.dtype, place: Place) -> None:
    queries = drafts(FEW_CONTEXTS, 4, place[0])
    query = random(len(FEW_CONTEXTS) * 4, 4, 24, dtype=place[1]).to(place[0])
    layer = pool(queries, 2, 24, kv_dtype)
    for window in (None, 21):
        ours = triton_kernels().paged_attention(query, layer, queries, 0.3, window)
        expected = REFERENCE.paged_attention(query, layer, queries, 0.3, window)
        torch.testing.assert_close(ours, expected, **tolerance(place[1]))


@pytest.mark.parametrize("place", PLACES)
def test_what_lies_behind_the_last_token_does_not_count(place: Place) -> None:
    contexts = [5, 41, 70]
    queries = drafts(contexts, 4, place[0])
    query = random(12, 4, 16, dtype=place[1]).to(place[0])
    layer = pool(queries, 2, 16, place[1])
    clean = triton_kernels().paged_attention(query, layer, queries, 0.3)
    for seq, context in enumerate(contexts):
        layer[queries.block_tables[seq, context // BLOCK], :, :, context % BLOCK :] = float("nan")
    assert torch.equal(triton_kernels().paged_attention(query, layer, queries, 0.3), clean)


@pytest.mark.parametrize("place", PLACES)
def test_a_row_is_that_of_a_decode_step_where_contexts_are_cut_alike(place: Place) -> None:
    """In the interpreter to the last bit; on a GPU products of other tiles may round otherwise."""
    each, contexts = 4, [context for context in CONTEXTS if context <= 4 * 32]
    queries = drafts(contexts, each, place[0])
    query = random(len(contexts) * each, 3, 16, dtype=place[1]).to(place[0])
    layer = pool(queries, 1, 16, place[1])
    together = triton_kernels().paged_attention(query, layer, queries, 0.3)
    for place_in, behind in enumerate(reversed(range(each))):
        alone = replace(
            queries,
            query_starts=torch.arange(len(contexts) + 1, dtype=torch.int32, device=place[0]),
            context_lens=queries.context_lens - behind,
            num_decodes=len(contexts),
            max_query_len=1,
            rows_each=0,
        )
        rows = slice(place_in, None, each)
        ours = triton_kernels().paged_attention(query[rows], layer, alone, 0.3)
        if place[0] == "cpu":
            assert torch.equal(together[rows], ours)
        else:
            torch.testing.assert_close(together[rows], ours, **tolerance(place[1]))


def test_rows_that_are_not_as_many_of_each_are_refused() -> None:
    queries = drafts([9, 9], 2, "cpu")
    layer = pool(queries, 1, 16, torch.float32)
    query = random(3, 1, 16, dtype=torch.float32)
    with pytest.raises(ValueError, match="3 query rows for 2 sequences of 2 each"):
        triton_kernels().paged_attention(query, layer, queries, 0.3)


@pytest.mark.parametrize("group", [1, 4, 8, 32])
@pytest.mark.parametrize("each", [2, 4, 8, 16])
def test_contexts_are_cut_as_for_decodes_and_tiles_stay_within_a_warp_group(
    each: int, group: int
) -> None:
    found = verify_tiles(heads(group=group), each, HOPPER)
    assert found is not None
    tokens, tiles = found
    decodes = decode_tiles(128, group, 8, 2)
    assert 1 <= tokens <= each
    assert group * tokens <= 64
    cuts = (tiles.chunk, tiles.min_split, tiles.max_splits)
    assert cuts == (decodes.chunk, decodes.min_split, decodes.max_splits)


@pytest.mark.parametrize("value_bytes", [1, 2, 4])
@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
@pytest.mark.parametrize("group", [1, 4, 7, 32])
def test_where_memory_is_small_copies_and_tokens_give_way_and_contexts_are_cut_alike(
    group: int, head_dim: int, value_bytes: int
) -> None:
    decodes = decode_tiles(head_dim, group, 8, value_bytes)
    for gpu in (AMPERE, ADA, HOPPER, BLACKWELL):
        found = verify_tiles(heads(head_dim, group, value_bytes), 16, gpu)
        assert found is not None
        tokens, tiles = found
        cuts = (tiles.chunk, tiles.min_split, tiles.max_splits)
        assert cuts == (decodes.chunk, decodes.min_split, decodes.max_splits)
        if gpu is not ADA:
            assert (tokens, tiles.num_stages) == (min(16, max(1, 64 // group)), 3)


def test_a_row_that_does_not_fit_has_no_tiles() -> None:
    assert verify_tiles(heads(256, 64, 4), 2, ADA) is None
    assert verify_tiles(heads(256, 64, 4), 2, HOPPER) is not None
    assert verify_tiles(heads(256, 4, 4), 16, ADA) is not None
