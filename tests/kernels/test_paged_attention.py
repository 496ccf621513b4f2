"""paged_attention against the reference, and the reference against torch's attention."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from kernels.cpu.team import TEAM
from kernels.dispatch.kernel_sets import REFERENCE
from kernels.paged_queries import PagedQueries
from kernels.reference.paged_attention import gather_sequence
from tests.kernels.kernel_sets import (
    CPU_SETS,
    DTYPES,
    QUANTIZED,
    cpu_set,
    paged_queries,
    quantized_pool_layer,
    random,
    random_pool_layer,
    tolerance,
)
from tests.kernels.triton_places import PLACES, Place
from tests.kernels.triton_places import kernels as triton_kernels

BATCHES = {
    "decodes": [(1, 1), (1, 63), (1, 64), (1, 65), (1, 150)],
    "a prompt": [(70, 70)],
    "decodes and chunks": [(1, 90), (1, 17), (5, 5), (40, 130), (16, 64)],
    "several segments": [(1, 700), (1, 256), (3, 300), (80, 530)],
}


def test_the_reference_is_the_attention_of_torch() -> None:
    query = random(20, 6, 32, dtype=torch.float32)
    layer = random_pool_layer(12, 2, 4, 32, torch.float32)
    queries = paged_queries([(20, 45)], 12, 4)
    keys, values = gather_sequence(layer, queries.block_tables[0], 45)
    mask = torch.ones(20, 45, dtype=torch.bool).tril(25)
    expected = F.scaled_dot_product_attention(
        query.transpose(0, 1),
        keys.repeat_interleave(3, 0),
        values.repeat_interleave(3, 0),
        mask,
        scale=0.2,
    )
    ours = REFERENCE.paged_attention(query, layer, queries, 0.2)
    torch.testing.assert_close(ours, expected.transpose(0, 1).flatten(1))


def asked(batch: str, block_size: int) -> tuple[PagedQueries, int, int]:
    """The queries of a batch, the blocks of a pool that holds it, and its tokens."""
    sequences = BATCHES[batch]
    num_blocks = sum(-(-context // block_size) for _, context in sequences) + 1
    num_tokens = sum(query_len for query_len, _ in sequences)
    return paged_queries(sequences, num_blocks, block_size), num_blocks, num_tokens


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", CPU_SETS)
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "block_size"),
    [(9, 3, 64, 16), (2, 2, 128, 5), (24, 1, 32, 16), (4, 2, 40, 8), (8, 1, 80, 16), (2, 1, 18, 8)],
)
def test_attention_is_that_of_the_reference(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    name: str,
    batch: str,
    dtype: torch.dtype,
) -> None:
    queries, num_blocks, num_tokens = asked(batch, block_size)
    query = random(num_tokens, num_heads, head_dim, dtype=dtype)
    layer = random_pool_layer(num_blocks, num_kv_heads, block_size, head_dim, dtype)
    ours = cpu_set(name).paged_attention(query, layer, queries, head_dim**-0.5)
    expected = REFERENCE.paged_attention(query, layer, queries, head_dim**-0.5)
    torch.testing.assert_close(ours, expected, **tolerance(dtype))


@pytest.mark.parametrize("name", ["reference", *CPU_SETS])
def test_what_lies_behind_the_last_token_does_not_count(name: str) -> None:
    kernels, queries = cpu_set(name), paged_queries([(1, 5), (3, 6)], 4, 4)
    query = random(4, 2, 32, dtype=torch.float32)
    layer = random_pool_layer(4, 2, 4, 32, torch.float32)
    clean = kernels.paged_attention(query, layer, queries, 0.2)
    for seq, context in ((0, 5), (1, 6)):
        layer[queries.block_tables[seq, 1], :, :, context - 4 :] = float("nan")
    assert torch.equal(kernels.paged_attention(query, layer, queries, 0.2), clean)


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("window", [None, 90])
@pytest.mark.parametrize("pool", [None, torch.int8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_native_kernels_give_a_row_the_same_bits_in_every_batch(
    dtype: torch.dtype, pool: torch.dtype | None, window: int | None
) -> None:
    kernels, block_size, length = cpu_set("native"), 16, 600
    query = 4 * random(length, 9, 64, dtype=dtype)  # large scores: the maximum grows often
    layer = random_pool_layer(40, 3, block_size, 64, dtype)
    if pool is not None:
        layer = quantized_pool_layer(40, 3, block_size, 64, pool)
    whole = paged_queries([(length, length)], 40, block_size)
    expected = kernels.paged_attention(query, layer, whole, 0.125, window)
    parts = ((0, 1), (149, 150), (599, 600), (512, 513), (0, 77), (77, 150), (63, 65), (250, 600))
    for first, end in parts:
        part = paged_queries([(end - first, end)], 40, block_size)
        part = replace(part, block_tables=whole.block_tables)
        ours = kernels.paged_attention(query[first:end], layer, part, 0.125, window)
        assert torch.equal(ours, expected[first:end])


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("num_seqs", [1, 40])
def test_native_kernels_give_the_same_bits_on_any_number_of_threads(num_seqs: int) -> None:
    kernels, num_blocks = cpu_set("native"), 40 * num_seqs
    queries = paged_queries([(1, 600)] * num_seqs, num_blocks, 16)
    query = random(num_seqs, 9, 64, dtype=torch.bfloat16)
    layer = random_pool_layer(num_blocks, 3, 16, 64, torch.bfloat16)
    before = TEAM.num_threads
    try:
        results = []
        for threads in (1, 2, 5):
            TEAM.resize(threads)
            results.append(kernels.paged_attention(query, layer, queries, 0.125))
    finally:
        TEAM.resize(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("window", [1, 7, 64, 300])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", CPU_SETS)
def test_a_window_hides_what_lies_before_it(name: str, batch: str, window: int) -> None:
    sequences = BATCHES[batch]
    queries = paged_queries(sequences, 250, 8)
    query = random(sum(length for length, _ in sequences), 4, 64, dtype=torch.float32)
    layer = random_pool_layer(250, 2, 8, 64, torch.float32)
    ours = cpu_set(name).paged_attention(query, layer, queries, 0.125, window)
    expected = REFERENCE.paged_attention(query, layer, queries, 0.125, window)
    torch.testing.assert_close(ours, expected, **tolerance(torch.float32))


@pytest.mark.parametrize("pool", QUANTIZED)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", CPU_SETS)
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "block_size"), [(9, 3, 64, 16), (2, 1, 40, 8)]
)
def test_attention_reads_a_quantized_pool_as_the_reference_does(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    name: str,
    batch: str,
    dtype: torch.dtype,
    pool: torch.dtype,
) -> None:
    queries, num_blocks, num_tokens = asked(batch, block_size)
    query = random(num_tokens, num_heads, head_dim, dtype=dtype)
    layer = quantized_pool_layer(num_blocks, num_kv_heads, block_size, head_dim, pool)
    ours = cpu_set(name).paged_attention(query, layer, queries, head_dim**-0.5, 100)
    expected = REFERENCE.paged_attention(query, layer, queries, head_dim**-0.5, 100)
    torch.testing.assert_close(ours, expected, **tolerance(dtype))


def test_a_window_in_the_reference_is_a_shorter_context() -> None:
    query = random(1, 4, 32, dtype=torch.float32)
    layer = random_pool_layer(6, 2, 4, 32, torch.float32)
    whole = paged_queries([(1, 20)], 6, 4)
    part = replace(
        whole,
        block_tables=whole.block_tables[:, 2:].contiguous(),
        context_lens=torch.tensor([12], dtype=torch.int32),
        max_context_len=12,
    )
    ours = REFERENCE.paged_attention(query, layer, whole, 0.2, 12)
    torch.testing.assert_close(ours, REFERENCE.paged_attention(query, layer, part, 0.2))


def test_an_empty_window_is_refused() -> None:
    queries = paged_queries([(1, 5)], 4, 4)
    query = random(1, 2, 32, dtype=torch.float32)
    layer = random_pool_layer(4, 2, 4, 32, torch.float32)
    with pytest.raises(ValueError, match="window is 0"):
        REFERENCE.paged_attention(query, layer, queries, 0.2, 0)


def test_tables_of_another_integer_type_are_refused() -> None:
    wide = paged_queries([(1, 5)], 4, 4)
    wide = replace(wide, query_starts=wide.query_starts.long())
    with pytest.raises(ValueError, match=r"query_starts is torch.int64; needed: torch.int32"):
        REFERENCE.paged_attention(
            random(1, 2, 8, dtype=torch.float32),
            random_pool_layer(4, 2, 4, 8, torch.float32),
            wide,
            0.2,
        )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim"), [(3, 1, 16), (4, 2, 24)], ids=["GQA", "odd head"]
)
@pytest.mark.parametrize(
    "sequences",
    [[(1, 1), (1, 300)], [(70, 70)], [(1, 9), (3, 3), (5, 90)]],
    ids=["decodes", "a prompt", "decodes and chunks"],
)
def test_triton_attention_is_that_of_the_reference(
    sequences: list[tuple[int, int]], num_heads: int, num_kv_heads: int, head_dim: int, place: Place
) -> None:
    device, dtype = place
    num_blocks = sum(-(-context // 16) for _, context in sequences) + 1
    queries = paged_queries(sequences, num_blocks, 16)
    queries = replace(
        queries,
        query_starts=queries.query_starts.to(device),
        context_lens=queries.context_lens.to(device),
        block_tables=queries.block_tables.to(device),
    )
    num_tokens = sum(query_len for query_len, _ in sequences)
    query = random(num_tokens, num_heads, head_dim, dtype=dtype).to(device)
    layer = random_pool_layer(num_blocks, num_kv_heads, 16, head_dim, dtype).to(device)
    ours = triton_kernels().paged_attention(query, layer, queries, head_dim**-0.5)
    expected = REFERENCE.paged_attention(query, layer, queries, head_dim**-0.5)
    torch.testing.assert_close(ours, expected, **tolerance(dtype))
