"""The Triton kernels of multi-head latent attention against their references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from kernels.dispatch.kernel_sets import REFERENCE
from kernels.kv_rows import row_scales, row_values, write_rows
from kernels.latent import LatentNorm
from kernels.paged_queries import QUANTIZED_KV, PagedQueryTables
from kernels.triton import decode_latent, prefill_latent
from kernels.triton.tuning import DecodeTiles, PrefillTiles
from tests.kernels.kernel_sets import paged_queries, random, tolerance
from tests.kernels.triton_places import PLACES, Place
from tests.kernels.triton_places import kernels as triton_kernels

BLOCK = 8
SMALL_SPLITS = DecodeTiles(
    chunk=16, min_split=32, max_splits=2, num_warps=4, num_stages=2, programs_per_processor=1
)
SMALL_TILES = PrefillTiles(rows=16, chunk=16, num_warps=4, num_stages=2)
MIXED = [(1, 5), (1, 110), (7, 40)]
SHAPES = [
    (3, 24, 8, None),
    (20, 32, 16, None),
    (3, 32, 8, torch.int8),
    (3, 24, 8, torch.float8_e4m3fn),
]
"""(num_heads, kv_rank, rope_dim, pool): one tile of heads or two; None: as the queries."""


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(decode_latent, "decode_latent_tiles", lambda *_: (16, SMALL_SPLITS))
    monkeypatch.setattr(prefill_latent, "prefill_latent_tiles", lambda *_: SMALL_TILES)
    yield


def batch(sequences: list[tuple[int, int]], device: str) -> PagedQueryTables:
    num_blocks = sum(-(-context // BLOCK) for _, context in sequences) + 1
    queries = paged_queries(sequences, num_blocks, BLOCK)
    return replace(
        queries,
        query_starts=queries.query_starts.to(device),
        context_lens=queries.context_lens.to(device),
        block_tables=queries.block_tables.to(device),
    )


def layer_of(queries: PagedQueryTables, row_dim: int, dtype: torch.dtype) -> torch.Tensor:
    """A layer of a pool of two, strided over blocks, full of rows."""
    num_blocks, device = int(queries.block_tables.max()) + 1, queries.block_tables.device
    rows = random(num_blocks * BLOCK, 1, row_dim, dtype=torch.float32, seed=1)
    width = row_dim + (4 if dtype in QUANTIZED_KV else 0)
    whole = torch.zeros(num_blocks, 2, 1, 1, BLOCK, width, dtype=dtype)
    write_rows(whole[:, 1], 0, torch.arange(num_blocks * BLOCK), rows)
    return whole.to(device)[:, 1]


def queries_of(
    sequences: list[tuple[int, int]], num_heads: int, row_dim: int, place: Place
) -> torch.Tensor:
    num_tokens = sum(length for length, _ in sequences)
    return random(num_tokens, num_heads, row_dim, dtype=place[1]).to(place[0])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("num_heads", "rank", "rope_dim", "kv_dtype"), SHAPES)
def test_latent_attention_is_that_of_the_reference(
    num_heads: int, rank: int, rope_dim: int, kv_dtype: torch.dtype | None, place: Place
) -> None:
    queries = batch(MIXED, place[0])
    query = queries_of(MIXED, num_heads, rank + rope_dim, place)
    layer = layer_of(queries, rank + rope_dim, kv_dtype or place[1])
    ours = triton_kernels().latent_attention(query, layer, queries, 0.2, rank)
    expected = REFERENCE.latent_attention(query, layer, queries, 0.2, rank)
    torch.testing.assert_close(ours, expected, **tolerance(place[1]))


@pytest.mark.parametrize("place", PLACES)
def test_a_decode_has_the_same_bits_alone_and_rows_behind_it_do_not_count(place: Place) -> None:
    decodes = [(1, 70), (1, 5), (1, 110)]
    queries = batch(decodes, place[0])
    query, layer = queries_of(decodes, 3, 32, place), layer_of(queries, 32, place[1])
    together = triton_kernels().latent_attention(query, layer, queries, 0.2, 24)
    for seq, (_, context) in enumerate(decodes):
        layer[queries.block_tables[seq, context // BLOCK], ..., context % BLOCK :, :] = float("nan")
        alone = replace(
            queries,
            query_starts=queries.query_starts[:2],
            context_lens=queries.context_lens[seq : seq + 1],
            block_tables=queries.block_tables[seq : seq + 1],
            num_decodes=1,
            max_context_len=200,
        )
        ours = triton_kernels().latent_attention(query[seq : seq + 1], layer, alone, 0.2, 24)
        assert torch.equal(ours[0], together[seq])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("num_tokens", "num_heads", "kv_dtype"),
    [(0, 2, None), (3, 2, None), (3, 40, None), (3, 2, torch.int8), (3, 2, torch.float8_e4m3fn)],
)
def test_write_latent_is_that_of_the_reference(
    num_tokens: int, num_heads: int, kv_dtype: torch.dtype | None, place: Place
) -> None:
    device, dtype = place
    rank, half = 24, 4
    angles = random(20, half, dtype=torch.float32, seed=4)
    table = torch.stack((angles.cos(), angles.sin()), dim=1).to(device)
    norm = LatentNorm(random(rank, dtype=torch.float32, seed=5).to(device), 1e-5)
    positions, slots = torch.tensor([[4, 0, 19], [7, 30, 8]], device=device)[:, :num_tokens]
    wider = random(num_tokens, rank + 2 * half + 5, dtype=dtype, seed=2).to(device)
    latent = wider[:, : rank + 2 * half]  # a slice of a wider row
    width = rank + 2 * half + (0 if kv_dtype is None else 4)
    ours, theirs = torch.zeros(
        2, 5, 2, 1, 1, BLOCK, width, dtype=kv_dtype or dtype, device=device
    ).unbind()
    query = random(num_tokens, num_heads, rank + 2 * half, dtype=dtype).to(device)
    rotated = query.clone()
    arguments = (norm, table, positions, slots)
    triton_kernels().write_latent(query, latent, *arguments, ours[:, 1])
    REFERENCE.write_latent(rotated, latent.clone(), *arguments, theirs[:, 1])
    torch.testing.assert_close(query, rotated, **tolerance(dtype))
    if kv_dtype is None:
        torch.testing.assert_close(ours, theirs, **tolerance(dtype))
        return
    torch.testing.assert_close(row_scales(ours[:, 1]), row_scales(theirs[:, 1]), rtol=1e-6, atol=0)
    values, others = row_values(ours[:, 1]).float(), row_values(theirs[:, 1]).float()
    if kv_dtype is not torch.int8 and device == "cpu":
        # Triton's interpreter loses the carry of a mantissa that rounds up to a power of two.
        values[(others.abs().frexp().mantissa == 0.5) & (values * 2 == others)] *= 2
    torch.testing.assert_close(values, others, rtol=0.125, atol=1)


def test_a_value_wider_than_the_accumulator_is_refused() -> None:
    queries = batch([(1, 5)], "cpu")
    query = random(1, 2, 600, dtype=torch.float32)
    layer = layer_of(queries, 600, torch.float32)
    with pytest.raises(ValueError, match="value_dim is 520; the Triton attention takes up to 512"):
        triton_kernels().latent_attention(query, layer, queries, 0.2, 520)
