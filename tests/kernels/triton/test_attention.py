"""The Triton attention: splits, windows, quantized pools, padding, and what must not matter.

Tiles are made small, so that short contexts have many splits and chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from kernels.dispatch.kernel_sets import REFERENCE
from kernels.kv_rows import write_rows
from kernels.paged_queries import PagedQueryTables
from kernels.triton import decode_attention, prefill_attention
from kernels.triton.tuning import DecodeTiles, PrefillTiles
from tests.kernels.kernel_sets import paged_queries, random, random_pool_layer, tolerance
from tests.kernels.triton_places import PLACES, Place
from tests.kernels.triton_places import kernels as triton_kernels

BLOCK = 8
SMALL_SPLITS = DecodeTiles(
    chunk=16, min_split=32, max_splits=4, num_warps=4, num_stages=2, programs_per_processor=1
)
SMALL_TILES = PrefillTiles(rows=16, chunk=16, num_warps=4, num_stages=2)
DECODES = [(1, 1), (1, 32), (1, 33), (1, 150)]
MIXED = [(1, 70), (19, 19), (7, 60)]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(decode_attention, "decode_tiles", lambda *_: SMALL_SPLITS)
    monkeypatch.setattr(prefill_attention, "prefill_tiles", lambda *_: SMALL_TILES)
    yield


def batch(sequences: list[tuple[int, int]], device: str) -> PagedQueryTables:
    num_blocks = sum(-(-context // BLOCK) for _, context in sequences) + 1
    return on(paged_queries(sequences, num_blocks, BLOCK), device)


def on(queries: PagedQueryTables, device: str) -> PagedQueryTables:
    return replace(
        queries,
        query_starts=queries.query_starts.to(device),
        context_lens=queries.context_lens.to(device),
        block_tables=queries.block_tables.to(device),
    )


def pool(
    queries: PagedQueryTables, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> torch.Tensor:
    """A layer of a pool of any dtype, strided over blocks, full of rows."""
    num_blocks, device = int(queries.block_tables.max()) + 1, queries.block_tables.device
    rows = random_pool_layer(num_blocks, num_kv_heads, BLOCK, head_dim, torch.float32)
    if dtype.itemsize > 1:
        return rows.to(dtype).to(device)
    whole = torch.zeros(num_blocks, 2, 2, num_kv_heads, BLOCK, head_dim + 4, dtype=dtype)
    layer, slots = whole[:, 1], torch.arange(num_blocks * BLOCK)
    for plane in range(2):
        write_rows(layer, plane, slots, rows[:, plane].transpose(1, 2).flatten(0, 1))
    return whole.to(device)[:, 1]


def queries_of(
    sequences: list[tuple[int, int]], heads: int, dim: int, place: Place
) -> torch.Tensor:
    device, dtype = place
    return random(sum(length for length, _ in sequences), heads, dim, dtype=dtype).to(device)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("sequences", [DECODES, MIXED], ids=["decodes", "decodes and chunks"])
@pytest.mark.parametrize(
    ("window", "num_heads", "num_kv_heads", "head_dim"),
    [(None, 3, 1, 32), (1, 2, 2, 16), (9, 4, 2, 16), (40, 5, 1, 24)],
)
def test_attention_is_that_of_the_reference_through_any_window(
    sequences: list[tuple[int, int]],
    window: int | None,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    place: Place,
) -> None:
    queries = batch(sequences, place[0])
    query = queries_of(sequences, num_heads, head_dim, place)
    layer = pool(queries, num_kv_heads, head_dim, place[1])
    ours = triton_kernels().paged_attention(query, layer, queries, 0.3, window)
    expected = REFERENCE.paged_attention(query, layer, queries, 0.3, window)
    torch.testing.assert_close(ours, expected, **tolerance(place[1]))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kv_dtype", [torch.int8, torch.float8_e4m3fn])
def test_a_quantized_pool_is_read_with_its_scales(kv_dtype: torch.dtype, place: Place) -> None:
    queries = batch(MIXED, place[0])
    query = queries_of(MIXED, 4, 24, place)
    layer = pool(queries, 2, 24, kv_dtype)
    for window in (None, 21):
        ours = triton_kernels().paged_attention(query, layer, queries, 0.3, window)
        expected = REFERENCE.paged_attention(query, layer, queries, 0.3, window)
        torch.testing.assert_close(ours, expected, **tolerance(place[1]))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kv_dtype", [None, torch.int8])
def test_what_lies_behind_the_last_token_does_not_count(
    kv_dtype: torch.dtype | None, place: Place
) -> None:
    sequences = [(1, 5), (1, 70), (9, 41)]
    queries = batch(sequences, place[0])
    query = queries_of(sequences, 4, 16, place)
    layer = pool(queries, 2, 16, kv_dtype or place[1])
    clean = triton_kernels().paged_attention(query, layer, queries, 0.3)
    used = {
        int(queries.block_tables[s, c // BLOCK]): c % BLOCK for s, (_, c) in enumerate(sequences)
    }
    for block, offset in used.items():
        if kv_dtype is None:
            layer[block, :, :, offset:] = float("nan")
        else:  # a row of NaN: its scale
            scales = layer[block].view(torch.int8).flatten(2)[..., -4 * (BLOCK - offset) :]
            scales.fill_(-1)
    assert torch.equal(triton_kernels().paged_attention(query, layer, queries, 0.3), clean)


@pytest.mark.parametrize("place", PLACES)
def test_a_decode_has_the_same_bits_in_every_batch_and_under_every_bound(place: Place) -> None:
    queries = batch(DECODES, place[0])
    query = queries_of(DECODES, 3, 16, place)
    layer = pool(queries, 1, 16, place[1])
    together = triton_kernels().paged_attention(query, layer, queries, 0.3)
    for seq, bound in ((0, 1), (2, 500), (3, 150)):
        alone = PagedQueryTables(
            query_starts=queries.query_starts[:2],
            context_lens=queries.context_lens[seq : seq + 1],
            block_tables=queries.block_tables[seq : seq + 1],
            num_decodes=1,
            max_query_len=1,
            max_context_len=bound,
        )
        ours = triton_kernels().paged_attention(query[seq : seq + 1], layer, alone, 0.3)
        assert torch.equal(ours[0], together[seq])


@pytest.mark.parametrize("place", PLACES)
def test_a_chunk_has_the_same_bits_beside_others_and_under_other_tiles(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = (replace(SMALL_TILES, rows=rows) for rows in (64, 128))
    monkeypatch.setattr(prefill_attention, "prefill_tiles", lambda *_: long)
    queries = batch(MIXED, place[0])
    query = queries_of(MIXED, 3, 16, place)
    layer = pool(queries, 1, 16, place[1])
    together = triton_kernels().paged_attention(query, layer, queries, 0.3)
    start, end = queries.query_starts[2:4].tolist()
    alone = PagedQueryTables(
        query_starts=torch.tensor([0, end - start], dtype=torch.int32, device=query.device),
        context_lens=queries.context_lens[2:3],
        block_tables=queries.block_tables[2:3],
        num_decodes=0,
        max_query_len=end - start,
        max_context_len=60,
    )
    monkeypatch.setattr(prefill_attention, "prefill_tiles", lambda *_: short)
    ours = triton_kernels().paged_attention(query[start:end], layer, alone, 0.3)
    assert torch.equal(ours, together[start:end])


@pytest.mark.parametrize("place", PLACES)
def test_padded_sequences_of_a_captured_graph_give_zeros(place: Place) -> None:
    queries = batch([(1, 40), (1, 8), (1, 90)], place[0])
    padded = replace(queries, context_lens=queries.context_lens * queries.context_lens.gt(8).int())
    query = queries_of([(1, 40), (1, 8), (1, 90)], 4, 16, place)
    layer = pool(queries, 2, 16, place[1])
    ours = triton_kernels().paged_attention(query, layer, padded, 0.3)
    assert torch.equal(ours[1], torch.zeros_like(ours[1]))
    expected = REFERENCE.paged_attention(query, layer, queries, 0.3)
    torch.testing.assert_close(ours[0::2], expected[0::2], **tolerance(place[1]))


def test_a_scale_that_would_turn_the_order_of_scores_is_refused() -> None:
    queries = batch([(1, 5)], "cpu")
    query, layer = random(1, 2, 16, dtype=torch.float32), pool(queries, 2, 16, torch.float32)
    with pytest.raises(ValueError, match=r"scale is -0.5; needed: above 0"):
        triton_kernels().paged_attention(query, layer, queries, -0.5)
